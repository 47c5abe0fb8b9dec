"""The rules: plain Python without Django, SQL, a clock or I/O.

Times are whole milliseconds since the epoch and tokens are integers, so every result is exact.
"""
