# SPDX-License-Identifier: GPL-2.0
"""A second opinion on the RP's state machine: one that ticks.

In: knobs as users write them, the real line rate, and CNPs and departures with
their times. Out: Rc, Rt, alpha and the stages at any later time. It is written
from the rules alone, in floating point and without any of the module's short
cuts, so that a test can compare the module, and the module's vectors, with it.
"""
import copy


class Rp:
    def __init__(self, knobs, line_mbps, dilation=1):
        """Rates inside are the model's (real times dilation), in bit/s."""
        us = lambda name: knobs[name] * 1000 * dilation  # noqa: E731
        mbps = lambda name: knobs[name] * 1e6  # noqa: E731
        self.dilation = dilation
        self.maximum = line_mbps * 1e6 * dilation
        if knobs["rpg_max_rate"]:
            self.maximum = min(self.maximum, mbps("rpg_max_rate"))
        self.minimum = min(mbps("rpg_min_rate"), self.maximum)
        self.first = knobs["rate_to_set_on_first_cnp"] and min(max(mbps("rate_to_set_on_first_cnp"), self.minimum), self.maximum)
        self.ai, self.hai = mbps("rpg_ai_rate"), mbps("rpg_hai_rate")
        self.hyper = knobs.get("hyper_increase", "qcn")
        self.threshold = knobs["rpg_threshold"]
        self.window, self.monitor, self.period = us("dce_tcp_rtt"), us("rate_reduce_monitor_period"), us("rpg_time_reset")
        self.bytes_per_stage = knobs["rpg_byte_reset"] * 64
        self.g = knobs["dce_tcp_g"] / 1024
        self.gd, self.floor = knobs["rpg_gd"], knobs["rpg_min_dec_fac"]
        self.clamp, self.clamp_time = knobs["clamp_tgt_rate"], knobs["clamp_tgt_rate_after_time_inc"]
        self.initial = knobs["initial_alpha_value"]
        self.forget = 1_000_000_000 * dilation
        self.now = 0
        self.cuts = self.increases = 0
        self.phases = set()
        self._free()

    def _free(self):
        self.known = self.limited = self.pending = False
        self.rc = self.rt = self.maximum
        self.alpha = 0.0
        self.time_stage = self.byte_stage = self.bytes = 0

    # Events

    def cnp(self, now):
        self.advance(now)
        self.last_cnp = now
        if not self.known:
            self.known = self.limited = True
            self.alpha = self.initial
            self.window_end, self.marked = now + self.window, False
            self.timer = now + self.period
            self.last_cut = now
            if self.first:
                self.rc = self.rt = self.first
            else:
                self._cut(now)
            return
        self.marked = True
        if now - self.last_cut >= self.monitor:
            self._cut(now)
        else:
            self.pending = True

    def sent(self, now, size):
        self.advance(now)
        if self.limited and self.bytes_per_stage:
            self.bytes += size
            while self.limited and self.bytes >= self.bytes_per_stage:
                self.bytes -= self.bytes_per_stage
                self.byte_stage += 1
                self._increase()

    def advance(self, now):
        """Ticks, in order of time; at one instant alpha, then a cut, then the timer.
        The integral of Rc over the time passed, in bits."""
        bits = 0.0
        if self.known and self.alpha == 0 and not self.marked and now > self.window_end:
            # Nothing decays any more: windows that would be ticked for nothing.
            self.window_end += (now - self.window_end) // self.window * self.window
        while True:
            due = []
            if self.known:
                due.append((self.window_end, 0, self._window))
                if self.pending:
                    due.append((self.last_cut + self.monitor, 1, self._pending_cut))
                if self.limited:
                    due.append((self.timer, 2, self._timer))
                elif not self.pending:
                    due.append((self.last_cnp + self.forget, 3, self._forget))
            at, _, tick = min(due, default=(None, 0, None), key=lambda d: d[:2])
            if at is None or at > now:
                break
            bits += self.rc * max(0, at - self.now) / 1e9
            self.now = max(self.now, at)
            tick(at)
        bits += self.rc * max(0, now - self.now) / 1e9
        self.now = max(self.now, now)
        return bits / self.dilation

    def at(self, now):
        """A copy as it will be, or was, at a later time than the last event's."""
        copied = copy.copy(self)
        copied.phases = set(self.phases)
        copied.advance(now)
        return copied

    @property
    def real_rc(self):
        return self.rc / self.dilation

    # Ticks

    def _window(self, at):
        self.alpha *= self.g
        if self.marked:
            self.alpha += 1024 * (1 - self.g)
        self.marked = False
        self.window_end = at + self.window
        if self.alpha < 1e-6:
            self.alpha = 0.0

    def _pending_cut(self, at):
        self._cut(at)

    def _timer(self, at):
        self.timer = at + self.period
        self.time_stage += 1
        self._increase()

    def _forget(self, at):
        self._free()

    def _cut(self, at):
        self.pending = False
        if self.clamp or self.byte_stage > 0 or (self.clamp_time and self.time_stage > 0):
            self.rt = self.rc
        by_alpha = self.rc * self.alpha / (1 << self.gd)
        self.rc = max(self.rc - min(by_alpha, self.rc * (100 - self.floor) / 100), self.minimum)
        self.rt = max(self.rt, self.rc)
        self.time_stage = self.byte_stage = self.bytes = 0
        self.timer = at + self.period
        self.last_cut = at
        self.limited = True
        self.cuts += 1

    def _increase(self):
        most, least = max(self.time_stage, self.byte_stage), min(self.time_stage, self.byte_stage)
        past = least - self.threshold
        if most < self.threshold:
            self.phases.add("fast_recovery")
        else:
            if past > 0:
                self.phases.add("hyper_increase")
                step = {"qcn": past * self.hai, "constant": self.hai, "doubling": self.hai * 2.0 ** (past - 1)}[self.hyper]
            else:
                self.phases.add("additive_increase")
                step = self.ai
            self.rt = min(self.rt + step, self.maximum)
        self.rc = (self.rc + self.rt) / 2
        self.increases += 1
        if (self.maximum - self.rc) * 1024 <= self.maximum:
            self.rc = self.maximum
            self.limited = False
