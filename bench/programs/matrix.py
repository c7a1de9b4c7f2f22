# numpy on one thread: a matrix product and a sort.
import time

import numpy as np
from threadpoolctl import threadpool_limits

random = np.random.default_rng(1)
a, b, c = random.random((600, 600)), random.random((600, 600)), random.random(1_000_000)
with threadpool_limits(1):
    a @ b
    start = time.perf_counter()
    for _ in range(12):
        a @ b
    np.sort(c)
    print(time.perf_counter() - start)
