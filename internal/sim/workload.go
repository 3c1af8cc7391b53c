package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

const (
	clockTicks = 100 // per second, as in /proc/PID/stat

	warmUp           = 45 * time.Second
	checkpointEvery  = 20 * time.Minute
	checkpointLasts  = 40 * time.Second
	collectiveGiveUp = time.Minute // how long ranks spin after a peer is gone
	restartAfterXid  = 20 * time.Second
	restartAfterLoss = 45 * time.Second

	linkTraining = 2.1e11 // bytes per second and way that a rank moves over NVLink
)

// workload is a Workload at one instant.
type workload struct {
	Workload
	rng     *rand.Rand
	gpus    []*gpu
	servers []*server // of an Inference workload
	moved   movement
	learner learner // of a Training workload

	software software

	on      bool    // its entry of the timeline holds: Saturate, Work, Run, Spin
	level   float64 // of that entry
	up      bool    // its processes exist
	since   time.Time
	broken  time.Time // since when it runs without one of its GPUs
	returns time.Time // not before this it starts again
	crashed bool      // a Batch workload does not start again by itself
}

// hostWork is what workloads ask of the host for one second.
type hostWork struct {
	cores, busiest float64 // CPUs in use; share of the busiest one
	read, write    float64 // disk, bytes
	rx, tx         float64 // network, bytes
}

// first is the server that the workload is about; the zero Server if it has none.
func (w *workload) first() Server {
	if len(w.Servers) == 0 {
		return Server{}
	}
	return w.Servers[0]
}

func (w *workload) wanted() bool { return w.Kind != Batch || w.on && !w.crashed }

// live starts and stops the workload's processes.
func (w *workload) live(s *Sim) {
	lost := false
	for _, g := range w.gpus {
		lost = lost || g.lost
	}
	if w.up && lost && w.broken.IsZero() {
		w.broken = s.now
	}
	switch {
	case w.up && !w.wanted():
		w.stop(s, 0)
	case w.up && !w.broken.IsZero() && (w.Kind != Training || !lost || s.now.Sub(w.broken) >= collectiveGiveUp):
		w.stop(s, restartAfterLoss)
	case !w.up && lost:
		w.returns = s.now.Add(restartAfterLoss)
	case !w.up && w.wanted() && !s.now.Before(w.returns):
		w.start(s, s.now)
	}
}

func (w *workload) start(s *Sim, since time.Time) {
	w.up, w.since = true, since
	w.learner.begin(since)
	for rank, g := range w.gpus {
		name := w.Process
		if strings.Contains(name, "%d") {
			name = fmt.Sprintf(name, rank)
		}
		s.lastPID += 1 + w.rng.IntN(40)
		g.procs = []*process{{
			pid: s.lastPID, start: uint64(since.Sub(s.boot).Seconds() * clockTicks),
			name: name, uid: w.UID, owner: w.Owner, mem: w.Memory,
		}}
	}
	for _, v := range w.servers {
		v.queue.open()
	}
}

func (w *workload) stop(s *Sim, rest time.Duration) {
	w.broken = time.Time{}
	w.up, w.since, w.returns = false, s.now, s.now.Add(rest)
	for _, g := range w.gpus {
		g.procs = nil
	}
	for _, v := range w.servers {
		v.queue.close()
	}
}

// ask gives the workload's GPUs their work for the next second.
func (w *workload) ask(now time.Time) hostWork {
	if !w.up {
		return hostWork{}
	}
	switch w.Kind {
	case Training:
		w.learn(now)
		return w.train(now.Sub(w.since))
	case Inference:
		return w.serve(now)
	case Notebook:
		return w.compute(w.on, 0.65, 0.55)
	case Batch:
		return w.compute(now.Sub(w.since) > warmUp/3, 0.62, 0.7)
	default:
		panic(fmt.Sprintf("BUG: workload kind %q", w.Kind))
	}
}

func (w *workload) train(age time.Duration) hostWork {
	n := float64(len(w.gpus))
	switch {
	case w.on || !w.broken.IsZero():
		w.each(func(g *gpu) work { return work{duty: 1, intensity: 0.06} })
		return hostWork{cores: n, busiest: 0.5}
	case age < warmUp:
		w.each(func(g *gpu) work {
			return work{duty: noise(g.rng, 0.12, 0.05), intensity: 0.3, memory: 0.1, rx: noise(g.rng, 9e9, 1e9), tx: noise(g.rng, 2e8, 2e7)}
		})
		return hostWork{cores: 2 * n, busiest: 0.7, read: 6e8 * n}
	case age%checkpointEvery >= checkpointEvery-checkpointLasts:
		w.each(func(g *gpu) work {
			return work{duty: noise(g.rng, 0.02, 0.01), intensity: 0.2, memory: 0.01, rx: noise(g.rng, 1e7, 1e6), tx: noise(g.rng, 3e9, 3e8)}
		})
		return hostWork{cores: 2 * n, busiest: 0.6, write: noise(w.rng, 7e8*n, 7e7)}
	}
	w.each(func(g *gpu) work {
		duty := min(1, max(0.95, noise(g.rng, 0.98, 0.012)))
		return work{duty: duty, intensity: noise(g.rng, 1.05, 0.02), memory: noise(g.rng, 0.44, 0.03),
			rx: noise(g.rng, 6e8, 6e7), tx: noise(g.rng, 4e8, 4e7), link: linkTraining * duty}
	})
	return hostWork{cores: noise(w.rng, 2.6*n, 0.2), busiest: noise(w.rng, 0.5, 0.04),
		read: noise(w.rng, 4e7*n, 8e6), rx: noise(w.rng, 2e7, 3e6), tx: noise(w.rng, 2e6, 3e5)}
}

// compute is what people do by hand: a kernel now and then.
func (w *workload) compute(busy bool, duty, intensity float64) hostWork {
	if !busy {
		w.each(func(*gpu) work { return work{} })
		return hostWork{cores: 0.02, busiest: 0.02}
	}
	w.each(func(g *gpu) work {
		d := min(1, noise(g.rng, duty, 0.12))
		return work{duty: d, intensity: intensity, memory: 0.35 * d, rx: noise(g.rng, 3e8, 5e7), tx: noise(g.rng, 5e7, 9e6)}
	})
	return hostWork{cores: noise(w.rng, 1.4, 0.2), busiest: noise(w.rng, 0.6, 0.05), read: noise(w.rng, 2e7, 4e6), rx: 1e6, tx: 1e5}
}

func (w *workload) each(f func(*gpu) work) {
	for _, g := range w.gpus {
		if !g.lost {
			g.work = f(g)
		}
	}
}
