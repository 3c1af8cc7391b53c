package detect

import (
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

func controlled() DetectorConfig { return DetectorConfig{Isolation: IsolationConfig{Controlled: true}} }

func TestPrivilegedContainerOnAGPU(t *testing.T) {
	for _, step := range []time.Duration{time.Second, time.Minute} {
		for _, cfg := range []DetectorConfig{{}, controlled()} {
			v := newSharedStage(t, cfg, step)
			v.join(train, "python3", 10*oneGiB, 0.5)
			v.give(train, 0)
			v.processes[0].Privileged = true
			v.run(12 * time.Minute)
			f := v.cause(privileged)
			if !cfg.Isolation.Controlled {
				v.none("a privileged pod where people try things")
				continue
			}
			if f == nil || f.Severity != rules.Ticket || f.Owner != train || f.Subject.String() != "pod:nlp/train-0" ||
				f.Evidence.Seen != "a process of pod nlp/train-0 on GPU 0 has every capability on the node" {
				t.Fatalf("a privileged pod on a controlled pool is %+v", f)
			}
			v.processes = nil
			v.run(40 * time.Minute)
			if v.cause(privileged) != nil {
				t.Error("the pod has gone, and the finding has not")
			}
		}
	}
}

func TestSensitiveDataBesideAnother(t *testing.T) {
	for cfg, want := range map[bool]rules.Severity{false: rules.Info, true: rules.Ticket} {
		v := newSharedStage(t, DetectorConfig{Isolation: IsolationConfig{Controlled: cfg}}, 15*time.Second)
		v.join(train, "python3", 10*oneGiB, 0.5)
		v.join(sneak, "python3", 10*oneGiB, 0.5)
		v.give(train, 1) // declared, and still of two classes
		v.give(sneak, 1)
		class := "secret"
		v.also = func(s *collector.Snapshot) {
			s.Workloads = []collector.Workload{
				{Owner: train, Sensitivity: "secret", Readings: collector.NewReadings(metric.Workload)},
				{Owner: sneak, Sensitivity: class, Readings: collector.NewReadings(metric.Workload)},
			}
		}
		v.run(10 * time.Minute)
		class = ""
		v.run(10 * time.Minute)
		v.none("data of one class, and of none")
		class = "public"
		v.run(7 * time.Minute)
		f := v.cause(sensitiveBeside)
		if f == nil || f.Severity != want || f.Title() != "Data of classes secret and public on one GPU" ||
			f.Evidence.Seen != "pod nlp/train-0 (secret) and pod vision/sneak (public) on one GPU" {
			t.Fatalf("data of two classes on one GPU is %+v, want %s", f, want)
		}
	}
}

func TestMPSAcrossOwners(t *testing.T) {
	v := newSharedStage(t, controlled(), 15*time.Second)
	v.join(train, "python3", 10*oneGiB, 0.5)
	v.join(sneak, "python3", 10*oneGiB, 0.5)
	v.give(train, 1)
	v.give(sneak, 1)
	v.processes[0].Set(metric.ProcessMPS, 1)
	v.run(10 * time.Minute)
	v.none("one client of MPS")
	v.processes[1].Set(metric.ProcessMPS, 1)
	v.run(7 * time.Minute)
	if f := v.cause(mpsAcross); f == nil || f.Severity != rules.Ticket || !strings.Contains(f.Evidence.Seen, "are clients of MPS on one GPU") {
		t.Errorf("two owners with one MPS are %+v", f)
	}
}

func TestSettingsOfIsolationThatChange(t *testing.T) {
	v := newSharedStage(t, controlled(), time.Minute)
	cc, mig := 1.0, 0.0
	v.also = func(s *collector.Snapshot) {
		s.Node.Set(metric.ConfidentialComputing, cc)
		s.GPUs[1].Set(metric.MIGMode, mig)
	}
	v.run(time.Hour)
	v.none("settings as they were")
	v.restart()
	v.now = v.now.Add(20 * time.Minute) // the node was booted with another setting
	cc = 0
	v.run(7 * time.Minute)
	f := v.cause(isolationChanged)
	if f == nil || f.Subject.String() != "node:n1" || f.Severity != rules.Ticket || f.Title() != "Confidential computing was turned off" ||
		f.Evidence.Seen != "confidential computing on the node is off since 01:21:00 UTC" {
		t.Fatalf("confidential computing that was turned off is %+v", f)
	}
	v.run(2 * time.Hour)
	if v.cause(isolationChanged) != nil {
		t.Error("two hours later it is still told")
	}
	mig = 1
	v.run(7 * time.Minute)
	if f := v.cause(isolationChanged); f == nil || f.Subject.String() != "gpu:GPU-1" || f.Title() != "MIG was turned on" {
		t.Errorf("MIG that was turned on is %+v", f)
	}

	free := newSharedStage(t, DetectorConfig{}, time.Minute)
	free.also = func(s *collector.Snapshot) { s.GPUs[1].Set(metric.MIGMode, mig) }
	free.run(time.Hour)
	mig = 0
	free.run(7 * time.Minute)
	if f := free.cause(isolationChanged); f == nil || f.Severity != rules.Info {
		t.Errorf("MIG that was turned off where people try things is %+v, want information", f)
	}
}

func TestIsolationSurvivesTheClock(t *testing.T) {
	d := NewIsolation(IsolationConfig{Controlled: true})
	s := node(day, 2)
	look := func(cc float64) (score float64) {
		s.Node.Set(metric.ConfidentialComputing, cc)
		s.Time = s.Time.Add(time.Minute)
		d.Observe(s, func(o Observation) { score = max(score, o.Score) })
		return score
	}
	look(1)
	if look(0) != 1 {
		t.Fatal("a setting that changed was not told")
	}
	d.Shift(-7 * 24 * time.Hour)
	s.Time = s.Time.Add(-7 * 24 * time.Hour)
	if look(0) != 1 {
		t.Error("with the clock set back a week, a change of a minute ago is not told")
	}
	for _, bad := range []string{"", `{"version":2}`, `{"version":1,"settings":1}`} {
		if d.Restore([]byte(bad)) == nil {
			t.Errorf("the memory %q was taken", bad)
		}
	}
	if err := d.Restore([]byte(`{"version":1,"settings":{"MIG":{"GPU-0":null}}}`)); err != nil || len(d.settings) != 0 {
		t.Errorf("a memory with a hole gives %v, %v", d.settings, err)
	}
}
