# SPDX-License-Identifier: Apache-2.0
"""Programs that use more than one thread or process, or that compile, export and trace.

    python processes.py ddp --result result.json
"""

import argparse
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
from torch import nn
from torch.nn import functional as F

from digest import Report, digest

WIDTH = 64


def network(seed=3):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(WIDTH, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 128), nn.Tanh(),
        nn.Linear(128, 10))


def batch(index, count=48):
    generator = torch.Generator().manual_seed(index)
    return torch.randn(count, WIDTH, generator=generator), torch.randint(
        10, (count,), generator=generator)


def train(model, batches, optimizer=None):
    """Trains; returns losses and gradients of the last step."""
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for inputs, target in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [losses, [p.grad for p in model.parameters() if p.grad is not None]]


def trained_digest(model, batches):
    return digest([train(model, batches), list(model.parameters())])


def threads(report):
    """Threads of the program: each trains a network of its own, all at the same time."""
    results = {}
    barrier = threading.Barrier(4)
    models = [network(seed) for seed in range(4)]

    def work(number):
        barrier.wait()
        results[number] = trained_digest(models[number], [batch(10 * number + i) for i in range(8)])

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for number in range(4):
        report.add(f"thread {number}", results[number])


def shared_model(report):
    """Four threads read one model and one batch while the main thread reads them too."""
    model, (inputs, _) = network(), batch(1)
    hidden = inputs * 2
    results = {}

    def work(number):
        with torch.no_grad():
            results[number] = [digest(model(hidden + number)) for _ in range(10)]

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    own = [digest(model(hidden).detach()) for _ in range(10)]
    for worker in workers:
        worker.join()
    report.add("main thread", own)
    report.add("threads", [results[number] for number in range(4)])


def backward_in_thread(report):
    """The graph is made in one thread, differentiated in another, used in the first."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for index in range(4):
        inputs, target = batch(index)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), target)
        worker = threading.Thread(target=loss.backward)
        worker.start()
        worker.join()
        optimizer.step()
        report.add(f"loss {index}", loss.item())
    report.add_model("", model)


class Samples(torch.utils.data.Dataset):
    """Its items are computed by operators, in the worker."""

    def __len__(self):
        return 24

    def __getitem__(self, index):
        inputs, target = batch(index, 16)
        noisy = inputs + 0.01 * torch.randn(inputs.shape) * torch.rand(1)
        return noisy.sort(dim=0).values, target


def loader(report, method):
    model = network()
    torch.manual_seed(11)
    data = torch.utils.data.DataLoader(
        Samples(), batch_size=4, shuffle=True, num_workers=2, persistent_workers=True,
        multiprocessing_context=method)
    batches = ((a.flatten(0, 1), b.flatten()) for _ in range(2) for a, b in data)
    report.add("training", train(model, batches))
    report.add_model("", model)


def loader_fork(report):
    loader(report, "fork")


def loader_spawn(report):
    loader(report, "spawn")


def fork(report):
    """Forks in mid-training with a graph alive; both sides go on, and must end up equal."""
    model = network()
    train(model, [batch(i) for i in range(3)])
    inputs, target = batch(77)
    hidden = model[:3](inputs)
    reader, writer = os.pipe()
    child = os.fork()
    loss = F.cross_entropy(model[3:](hidden), target)
    loss.backward()
    rest = digest([trained_digest(model, [batch(i) for i in range(3, 6)]), hidden, loss])
    if child == 0:
        os.write(writer, rest.encode())
        os._exit(0)
    os.close(writer)
    said = b"".join(iter(lambda: os.read(reader, 4096), b"")).decode()
    _, status = os.waitpid(child, 0)
    report.add("status of the child", status)
    report.add("in the child", said)
    report.add("in the parent", rest)
    report.facts["equal"] = said == rest


def subprocesses(report):
    """Programs without torch must not notice anything; one with torch is managed by itself."""
    model = network()
    hidden = model(batch(0)[0])
    for argv in (["sh", "-c", "echo out; echo err >&2; exit 3"], ["ls", "/"], ["true"],
                 [sys.executable, "-c", "import sys; print(sys.argv)"]):
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        report.add(f"output of {argv[0]}", [done.returncode, done.stdout, done.stderr])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "result.json")
        subprocess.run([sys.executable, __file__, "backward_in_thread", "--result", path],
                       check=True)
        report.add("torch in a subprocess", pathlib.Path(path).read_text(encoding="utf-8"))
    report.add("afterwards", hidden)


def square_shared(shared, queue, received, index):
    """Runs in another process: writes to shared memory and sends tensors back."""
    shared[index].mul_(shared[index])
    queue.put((index, shared[index] @ shared[index].T))
    received.wait()  # the sender of a tensor must live until it has arrived


def shared_tensors(report):
    import torch.multiprocessing as multiprocessing

    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        shared = (torch.arange(2 * 80 * 80, dtype=torch.float32).reshape(2, 80, 80) / 6400)
        view = shared[1]
        shared.share_memory_()
        queue, done = context.SimpleQueue(), context.Event()
        workers = [context.Process(target=square_shared, args=(shared, queue, done, index))
                   for index in range(2)]
        for worker in workers:
            worker.start()
        received = dict(queue.get() for _ in workers)
        done.set()
        report.add(f"received {method}", [received[0] + 1, received[1] + 1])
        for worker in workers:
            worker.join()
        report.add(f"shared {method}", [shared, view, shared + 1])


def ddp_rank(rank, folder):
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    model = DistributedDataParallel(network(), bucket_cap_mb=0.05)
    result = train(model, [batch(10 * rank + i) for i in range(5)])
    gathered = [torch.empty(WIDTH, 4) for _ in range(2)]
    own = torch.full((WIDTH, 4), float(rank)).cumsum(0)
    dist.all_gather(gathered, own)
    pending = dist.all_reduce(own, async_op=True)
    other = torch.randn(300, 300).mm(torch.randn(300, 300))
    pending.wait()
    values = [result, list(model.parameters()), gathered, own, other]
    pathlib.Path(folder, f"rank{rank}").write_text(digest(values), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def ddp(report):
    import torch.multiprocessing as multiprocessing

    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(ddp_rank, args=(folder,), nprocs=2)
        for rank in range(2):
            text = pathlib.Path(folder, f"rank{rank}").read_text(encoding="utf-8")
            report.add(f"rank {rank}", text)


def compiled(report):
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(TORCHINDUCTOR_CACHE_DIR=folder, TORCHINDUCTOR_COMPILE_THREADS="1")
        model = network()
        fast = torch.compile(model)
        report.add("training", train(fast, [batch(i) for i in range(3)]))
        with torch.no_grad():
            report.add("inference", fast(batch(9)[0]))
        report.add_model("", model)


def export(report):
    model = network()
    inputs, _ = batch(0)
    program = torch.export.export(model, (inputs,))
    report.add("exported", program.module()(batch(1)[0]))
    report.add("original", model(batch(1)[0]))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "program.pt2")
        torch.export.save(program, path)
        report.add("loaded", torch.export.load(path).module()(batch(2)[0]))


def trace(report):
    model = network()
    traced = torch.jit.trace(model, (batch(0)[0],))
    report.add("traced training", train(traced, [batch(i) for i in range(4)]))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "traced.pt")
        traced.save(path)
        report.add("loaded", torch.jit.load(path)(batch(5)[0]))
    report.add_model("", model)


def queue_of_tensors(report):
    """Tensors pickled for another process while their values are evicted here."""
    model = network()
    hidden = model(batch(0)[0]).detach()
    copy = pickle.loads(pickle.dumps([hidden, hidden[3:9], hidden.T]))
    report.add("pickled", copy)
    report.add("hidden", hidden + 1)


PROGRAMS = (threads, shared_model, backward_in_thread, loader_fork, loader_spawn, fork,
            subprocesses, shared_tensors, ddp, compiled, export, trace, queue_of_tensors)


def main():
    programs = {function.__name__: function for function in PROGRAMS}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", choices=sorted(programs))
    parser.add_argument("--result")
    options = parser.parse_args()
    report = Report()
    programs[options.program](report)
    report.write(options.result)


if __name__ == "__main__":
    main()
