# Pure Python: calls, integers, lists, dictionaries.
import time


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


start = time.perf_counter()
fibonacci(27)
sieve = bytearray([1]) * 1_000_000
for i in range(2, 1001):
    if sieve[i]:
        sieve[i * i :: i] = bytes(len(range(i * i, 1_000_000, i)))
words = {}
for i in range(600_000):
    words[i % 1000] = words.get(i % 1000, 0) + i
sorted((i * 7919) % 100_003 for i in range(300_000))
print(time.perf_counter() - start)
