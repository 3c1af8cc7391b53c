package detect

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

func uses(s *collector.Snapshot, name string, uid int, owner collector.Owner) {
	s.Processes = append(s.Processes, collector.Process{PID: len(s.Processes) + 1, Name: name, UID: uid, UUID: "GPU-0", Owner: owner})
}

func TestUnknownUse(t *testing.T) {
	for _, controlled := range []bool{false, true} {
		for _, step := range []time.Duration{15 * time.Second, time.Minute} {
			t.Run(fmt.Sprint(controlled, step), func(t *testing.T) {
				cfg := UnknownUseConfig{Controlled: controlled}
				st := only(t, time.Hour, NewUnknownUse(cfg))
				usual := func(s *collector.Snapshot) {
					uses(s, "python3.11", 1000, job)
					uses(s, "ray::worker_17", 0, pod)
				}
				st.set = usual
				st.run(8 * 24 * time.Hour)
				st.again(NewUnknownUse(cfg))
				st.step = step
				st.set = func(s *collector.Snapshot) {
					usual(s)
					uses(s, "ray::worker_18", 0, pod)
					uses(s, "python3.12", 1000, job)
				}
				st.run(time.Hour)
				st.silent("other numbers are no other names")
				st.set = func(s *collector.Snapshot) {
					usual(s)
					uses(s, "hashcat", 1000, job)
					uses(s, "python3", 4711, user)
				}
				st.run(10 * time.Minute)
				f := st.finding(rules.IDUnknownUse, "job:slurm/4711")
				if f == nil || f.Cause != "process" || !strings.HasPrefix(f.Evidence.Seen, `1 process by names such as "hashcat", never seen on a GPU of this node before 2026-03-10 01:0`) {
					t.Fatalf("a name that was never seen: %+v", f)
				}
				u := st.finding(rules.IDUnknownUse, "user:1000")
				if u == nil || u.Cause != "user" || strings.Contains(u.Evidence.Seen+u.Evidence.Why, "4711") {
					t.Fatalf("a user that was never seen: %+v", u)
				}
				want := rules.Info
				if controlled {
					want = rules.Ticket
				}
				if f.Severity != want || u.Severity != want {
					t.Errorf("severity is %s and %s, want %s", f.Severity, u.Severity, want)
				}
				st.set = usual
				st.run(30 * time.Minute)
				if st.firing(rules.IDUnknownUse, "job:slurm/4711") {
					t.Error("it fires though the process has ended")
				}
			})
		}
	}
}

func TestUnknownUseLookAlikes(t *testing.T) {
	late := func(s *collector.Snapshot) bool { return !s.Time.Before(day.Add(9 * 24 * time.Hour)) }
	for name, set := range map[string]func(s *collector.Snapshot){
		"the first week": func(s *collector.Snapshot) {
			if s.Time.Before(day.Add(6 * 24 * time.Hour)) {
				uses(s, string(rune('a'+s.Time.Hour()))+"x", s.Time.Hour(), job)
			}
		},
		"another replica of a known deployment": func(s *collector.Snapshot) {
			uses(s, "vllm", 1000, replica(0))
			if late(s) {
				uses(s, "vllm", 1000, replica(1))
			}
		},
		"a service": func(s *collector.Snapshot) {
			uses(s, "python3", 1000, job)
			if late(s) {
				uses(s, "nvidia-persistenced", 77, collector.Owner{})
			}
		},
		"a process without name and user": func(s *collector.Snapshot) {
			uses(s, "python3", 1000, job)
			if late(s) {
				uses(s, "", -1, job)
			}
		},
		"a notebook that comes each week": func(s *collector.Snapshot) {
			uses(s, "python3", 1000, job)
			if s.Time.Weekday() == time.Tuesday {
				uses(s, "jupyter-lab", 1000, user)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			st := only(t, 10*time.Minute, NewUnknownUse(UnknownUseConfig{Controlled: true}))
			st.set = set
			st.run(20 * 24 * time.Hour)
			st.silent(name)
		})
	}
}

// What is new is usual after a day.
func TestUnknownUseBecomesKnown(t *testing.T) {
	st := only(t, 10*time.Minute, NewUnknownUse(UnknownUseConfig{Controlled: true}))
	st.set = func(s *collector.Snapshot) { uses(s, "python3", 1000, job) }
	st.run(8 * 24 * time.Hour)
	st.set = func(s *collector.Snapshot) { uses(s, "train", 1000, job) }
	st.run(23 * time.Hour)
	st.ticketed(rules.IDUnknownUse, "job:slurm/4711", "process")
	st.run(2 * time.Hour)
	if st.firing(rules.IDUnknownUse, "job:slurm/4711") {
		t.Error("it fires a day after the name was first seen")
	}
}

func TestUnknownUseMemoryIsBounded(t *testing.T) {
	d := NewUnknownUse(UnknownUseConfig{})
	for i := range 200 {
		s := node(day.Add(time.Duration(i)*time.Hour), 1)
		for k := range 100 {
			uses(s, "p"+strings.Repeat("x", k)+strings.Repeat("y", i), 100*i+k, collector.Owner{Kind: "pod", ID: fmt.Sprint(i, k)})
		}
		d.Observe(s, func(Observation) {})
	}
	if len(d.uses[0]) > maxUses || len(d.uses[1]) > maxUses || len(d.told) > maxUnknown || len(d.keys) > 4*maxUses {
		t.Errorf("it keeps %d names, %d users, %d subjects and %d keys, without end", len(d.uses[0]), len(d.uses[1]), len(d.told), len(d.keys))
	}
}

func TestUnknownUseAllocatesNothing(t *testing.T) {
	d := NewUnknownUse(UnknownUseConfig{})
	var ring []*collector.Snapshot
	for i := range 700 {
		s := node(day.Add(time.Duration(i)*15*time.Second), 8)
		for k := range 8 {
			uses(s, "python3", 1000+k, job)
		}
		ring = append(ring, s)
	}
	next, report := 0, func(Observation) {}
	observe := func() { d.Observe(ring[next], report); next++ }
	observe()
	if got := testing.AllocsPerRun(600, observe); got > 0.01 {
		t.Errorf("a snapshot costs %.2f allocations, want none", got)
	}
}
