"""The plans of faults. Each repeats its fault while time is left, at least once."""

import signal
import time


def rounds(trial):
    """Yields for each round, once all servers serve. The plan ends early if they do not."""
    yield
    while trial.left() > 0:
        trial.heal()
        if trial.settle(15):
            trial.note("not all servers serve: no further round")
            return
        yield


def restart_behind_cut(trial):
    """A member is killed; it restarts while only its link to the sequencer is cut."""
    for _ in rounds(trial):
        sequencer = trial.sequencer()
        member = trial.others(sequencer)[0]
        trial.cut(member, sequencer)
        trial.kill(member)
        trial.wait(0, 1)
        trial.start(member)
        trial.wait(2, 5)


def two_sequencers(trial):
    """The sequencer and, 0.2 s later, its successor are killed; each restarts at once (sometimes both together).

    A group without traffic notices a death later, so in most rounds the clients are silent until both died.
    """
    gap, together, quiet = 0.2, False, True
    for _ in rounds(trial):
        if quiet:
            trial.quiet.set()
            trial.wait(0.5)
        ranked = (trial.view() + trial.others())[: len(trial.servers)]
        first, second = ranked[0], next(server for server in ranked if server != ranked[0])
        trial.kill(first)
        due = time.monotonic() + gap
        if not together:
            trial.start(first)
        now = trial.view(gap)
        time.sleep(max(0, due - time.monotonic()))
        second = now[0] if now and now[0] != first else second
        trial.kill(second)
        trial.start(second)
        if together:
            trial.start(first)
        trial.wait(0.05, 0.15)
        trial.quiet.clear()
        trial.wait(1, 1.5)
        quiet = trial.rng.random() < 0.8
        gap, together = trial.rng.choice([0.1, 0.15, 0.2, 0.25]), trial.rng.random() < 0.3


def excluded_partial(trial):
    """A member is excluded while it pauses, and wakes behind a cut link to the sequencer, or to a random part."""
    for _ in rounds(trial):
        sequencer = trial.sequencer()
        member = trial.others()[0]
        trial.signal(member, signal.SIGSTOP)
        trial.wait(2, 3.5)
        sequencer = trial.sequencer()
        behind = [sequencer] + trial.others(member, sequencer)[: trial.rng.choice([0, 0, trial.minority - 1])]
        for other in behind:
            trial.cut(member, other)
        trial.signal(member, signal.SIGCONT)
        trial.wait(3, 5)


def ring(trial):
    """Each member reaches only its two neighbours (of three members, two do not reach each other)."""
    for _ in rounds(trial):
        order = trial.others()
        count = len(order)
        for i in range(count):
            for j in range(i + 1, count):
                if j - i not in (1, count - 1) or (count == 3 and i == 0 and j == 2):
                    trial.cut(order[i], order[j])
        trial.wait(2, 6)


def bridge(trial):
    """Two halves that share one member."""
    for _ in rounds(trial):
        order = trial.others()
        half = (len(order) - 1) // 2
        for one in order[1 : half + 1]:
            for other in order[half + 1 :]:
                trial.cut(one, other)
        trial.wait(2, 6)


def one_way(trial):
    """Links that carry datagrams in one direction only."""
    for _ in rounds(trial):
        for _ in range(trial.rng.randint(1, len(trial.servers))):
            one, other = trial.others()[:2]
            if trial.rng.random() < 0.4:
                one = trial.sequencer()
                other = trial.others(one)[0]
                one, other = trial.rng.sample([one, other], 2)
            trial.cut(one, other, both=False)
        trial.wait(1, 4)


def rolling(trial):
    """One member after the other restarts; the next one when it serves."""
    for _ in rounds(trial):
        for server in trial.others():
            while trial.died_lately() >= trial.minority:
                time.sleep(0.05)
            if trial.rng.random() < 0.5:
                trial.terminate(server)
            trial.restart(server)
            if trial.settle(15, [server]):
                return
            if trial.left() < 0:
                break


def pause(trial):
    """A member, or the sequencer, is stopped for 0.3 to 5 s."""
    for _ in rounds(trial):
        server = trial.sequencer() if trial.rng.random() < 0.5 else trial.others()[0]
        trial.signal(server, signal.SIGSTOP)
        trial.wait(0.3, 5)
        trial.signal(server, signal.SIGCONT)
        trial.wait(0, 1)


def storm(trial, wild=False):
    """Members are killed and restart every 0.1 to 0.5 s; at most a minority does not serve, or died within 1 s."""
    while trial.left() > 0:
        down = [server for server in trial.servers if not trial.serves(server)]
        choice = down if len(down) >= trial.minority else trial.servers
        if wild or trial.died_lately() < trial.minority:
            trial.restart(trial.rng.choice(choice))
        trial.wait(0.1, 0.5)


def wild_storm(trial):
    """The same without the rule of 1 s, so more processes may die than the group has excluded yet, and it may halt for good."""
    storm(trial, wild=True)


def mix(trial):
    """All kinds of faults at random; at most a minority is down, paused or cut off at a time."""
    paused, apart = {}, []
    while trial.left() > 0:
        for server in [server for server, until in paused.items() if until < time.monotonic()]:
            trial.signal(server, signal.SIGCONT)
            del paused[server]
        hit = {server for server in trial.servers if not trial.serves(server)} | set(paused) | set(apart)
        free = [server for server in trial.servers if server not in hit]
        kind = trial.rng.choice(["restart", "kill again", "pause", "cut", "one way", "heal", "wait"])
        if kind == "heal" or (apart and trial.rng.random() < 0.2):
            trial.heal()
            apart.clear()
        elif kind in ("kill again", "restart") and trial.died_lately() >= trial.minority:
            pass
        elif kind == "kill again" and hit - set(paused):
            trial.restart(trial.rng.choice(sorted(hit - set(paused))))
        elif len(hit) < trial.minority and kind in ("restart", "pause", "cut", "one way"):
            server = trial.sequencer() if trial.rng.random() < 0.4 else trial.rng.choice(free)
            if server not in free:
                continue
            if kind == "restart":
                trial.restart(server)
            elif kind == "pause":
                trial.signal(server, signal.SIGSTOP)
                paused[server] = time.monotonic() + trial.rng.uniform(0.3, 5)
            else:
                for other in trial.others(server)[: trial.rng.randint(1, len(trial.servers) - 1)]:
                    trial.cut(*trial.rng.sample([server, other], 2), both=kind == "cut")
                apart.append(server)
        trial.wait(0.1, 1)


def kill_all(trial):
    """All servers are killed within 0.3 s, and restart in another order, the last one up to 2 s after the first."""
    for _ in rounds(trial):
        for server in trial.others():
            trial.kill(server)
            trial.wait(0, 0.1)
        for server in trial.others():
            trial.start(server)
            trial.wait(0, 2 / len(trial.servers))
        trial.settle(15)
        trial.wait(0, 1)


def lost_folder(trial):
    """A server is killed and comes back with an empty folder; sometimes another one dies just after it serves."""
    for _ in rounds(trial):
        server, other = trial.others()[:2]
        trial.kill(server)
        trial.lose_folder(server)
        trial.wait(0, 1)
        trial.start(server)
        if trial.settle(15, [server]):
            return
        if trial.rng.random() < 0.5:
            trial.restart(other)
        trial.wait(0, 2)


def full_disk(trial):
    """The disk of a server fills up under load; the server ends, and comes back with an empty folder on a large disk."""
    for _ in rounds(trial):
        server = trial.others()[0]
        trial.kill(server)
        if not trial.shrink_disk(server):
            return
        trial.start(server)
        if trial.settle(15, [server]):
            return
        trial.fill_disk(server)
        trial.wait(1, 3)
        trial.kill(server)
        trial.grow_disk(server)
        trial.start(server)


PLANS = {
    "restart-behind-cut": restart_behind_cut, "two-sequencers": two_sequencers, "excluded-partial": excluded_partial,
    "ring": ring, "bridge": bridge, "one-way": one_way, "rolling": rolling, "pause": pause, "storm": storm, "mix": mix,
    "wild-storm": wild_storm, "kill-all": kill_all, "lost-folder": lost_folder, "full-disk": full_disk,
}  # fmt: skip
# Only servers on disk survive these.
NOT_IN_ALL = ["wild-storm"]
ON_DISK = ["kill-all", "lost-folder", "full-disk"]
