#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Makes what kolo-train is compared with: first weights, and PyTorch's first 50 losses from them.

    /usr/bin/python3 tests/golden/make_losses.py        (needs torch; the tests do not)

Writes beside itself
    weights.f32             conv1.weight, conv1.bias, ... fc2.bias as raw little-endian float32
    losses_synthetic.txt    losses on the images that kolo-train makes up (the formula is below)
    losses_fashion.txt      losses on Fashion-MNIST, if Debian's dataset-fashion-mnist is installed
The run: the tutorial's network without dropout, batch 64 in the order of the files, plain SGD with
lr 0.01 and momentum 0.5.
"""

import gzip
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).parent
FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")
BATCH, STEPS = 64, 50
COUNT = BATCH * STEPS


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = torch.nn.Conv2d(10, 20, kernel_size=5)
        self.fc1 = torch.nn.Linear(320, 50)
        self.fc2 = torch.nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = F.relu(self.fc1(x.view(-1, 320)))
        return F.log_softmax(self.fc2(x), dim=1)


def random_bits(key, counter):
    """examples/ddp/random.h, on arrays."""
    with np.errstate(over="ignore"):
        mixed = np.uint64(key) + (np.uint64(counter) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))


def synthetic():
    """examples/ddp/data.c, draw_stripes."""
    directions = np.array([(2, 0), (5, 0), (0, 2), (0, 5), (2, 2), (4, 4), (2, -2), (4, -4), (1, 4), (4, -1)])
    y, x = np.divmod(np.arange(784), 28)
    images = np.empty((COUNT, 784), np.uint8)
    labels = np.empty(COUNT, np.int64)
    for i in range(COUNT):
        key = random_bits(np.uint64(0), np.uint64(i))
        labels[i] = int(key % np.uint64(10))
        dx, dy = directions[labels[i]]
        phase = int(random_bits(key, np.uint64(0)) & np.uint64(31))
        noise = random_bits(key, 1 + np.arange(784, dtype=np.uint64)) % np.uint64(100)
        on_stripe = (dx * x + dy * y + phase + 128) >> 4 & 1
        images[i] = np.where(on_stripe == 1, 140, 20) + noise.astype(np.int64)
    return images, labels


def fashion():
    def read(name, header):
        with gzip.open(FASHION / name) as file:
            return np.frombuffer(file.read(), np.uint8, offset=header)

    images = read("train-images-idx3-ubyte.gz", 16).reshape(-1, 784)[:COUNT]
    return images, read("train-labels-idx1-ubyte.gz", 8)[:COUNT].astype(np.int64)


def losses(weights, images, labels):
    net = Net()
    net.load_state_dict(weights)
    sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.5)
    x = torch.from_numpy(images.copy()).float().div(255).sub(0.1307).div(0.3081).view(-1, 1, 28, 28)
    y = torch.from_numpy(labels)
    for step in range(STEPS):
        part = slice(step * BATCH, (step + 1) * BATCH)
        sgd.zero_grad()
        loss = F.nll_loss(net(x[part]), y[part])
        loss.backward()
        sgd.step()
        yield loss.item()


def write(name, values):
    with open(HERE / name, "w") as file:
        for step, value in enumerate(values, 1):
            file.write(f"{step} {value:.9g}\n")


def main():
    torch.manual_seed(1234)
    torch.set_num_threads(1)
    weights = Net().state_dict()
    with open(HERE / "weights.f32", "wb") as file:
        for value in weights.values():
            file.write(value.numpy().astype("<f4").tobytes())
    write("losses_synthetic.txt", losses(weights, *synthetic()))
    if FASHION.is_dir():
        write("losses_fashion.txt", losses(weights, *fashion()))


if __name__ == "__main__":
    main()
