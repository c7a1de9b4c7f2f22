# What models write most: a table, a summary of it, a picture.
import numpy as np
import pandas as pd
import matplotlib.pyplot as plt

random = np.random.default_rng(7)
sales = pd.DataFrame({
    "region": random.choice(["north", "east", "south", "west"], 1000),
    "month": random.integers(1, 13, 1000),
    "amount": random.gamma(2.0, 50.0, 1000).round(2),
})
by_month = sales.groupby(["month", "region"])["amount"].sum().unstack()
figure, axes = plt.subplots(figsize=(6, 4))
by_month.plot(ax=axes, marker="o")
axes.set_title("Sales by month")
figure.savefig("plot.png")
print(len(by_month))
