package server

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	vm "github.com/VictoriaMetrics/metrics"
	"github.com/google/go-cmp/cmp"

	"gpuvigil/internal/metric"
)

// ownSet returns a set of counters that is on the page for the test's time only.
func ownSet(t *testing.T) *vm.Set {
	set := vm.NewSet()
	vm.RegisterSet(set)
	t.Cleanup(func() { vm.UnregisterSet(set, true) })
	return set
}

func TestAgentsOwnCountersAreOnThePage(t *testing.T) {
	odd := "a\\b\"c\nd,e=\"f\" g\xff"
	set := ownSet(t)
	set.NewCounter(metric.NotificationsSent.Series(odd, "sent")).Set(7)
	set.NewFloatCounter(metric.DetectorSeconds.Series("xid")).Set(0.25) // of the full profile only
	set.NewCounter(metric.DetectorPanics.Series("xid")).Set(0)          // nothing has failed
	set.NewGauge(metric.OutboxLength.Series("slack"), func() float64 { return 3 })
	s := node(soon()).server(t)
	families := gather(t, s)
	got := map[string]string{}
	for _, f := range families {
		switch f.GetName() {
		case metric.NotificationsSent.Name, metric.DetectorSeconds.Name, metric.DetectorPanics.Name, metric.OutboxLength.Name:
			m := f.Metric[0]
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			got[f.GetName()] = fmt.Sprintf("%s %s %g", f.GetType(), m.Label[0].GetValue(), v)
			if f.GetHelp() == "" {
				t.Errorf("%s has no help", f.GetName())
			}
		}
	}
	want := map[string]string{
		metric.NotificationsSent.Name: "COUNTER a\\b\"c\nd,e=\"f\" g\uFFFD 7",
		metric.OutboxLength.Name:      "GAUGE slack 3",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the agent's counters on the page (-want +got):\n%s", diff)
	}
}

func TestCounterOutsideOfTheCatalogueIsRefused(t *testing.T) {
	set := ownSet(t)
	set.NewCounter("go_goroutines").Set(1)
	set.NewCounter(`vigil_notifications_total{receiver="x"}`).Set(1)
	set.NewCounter(`vigil_condition{subject="x",rule="y"}`).Set(1)
	var said strings.Builder
	s := New(Config{Snapshot: (&world{}).server(t).cfg.Snapshot, View: (&world{}).server(t).cfg.View, Log: slog.New(slog.NewTextHandler(&said, nil))})
	before := refusedUnknown.Get()
	for range 2 {
		families := gather(t, s)
		for _, f := range families {
			if !strings.HasPrefix(f.GetName(), "vigil_") || f.GetName() == metric.Condition.Name {
				t.Errorf("%s is on the page", f.GetName())
			}
		}
	}
	if got := refusedUnknown.Get() - before; got != 6 {
		t.Errorf("%d refused series counted in two scrapes, want 6", got)
	}
	if got := strings.Count(said.String(), "this is a bug"); got != 3 {
		t.Errorf("the log tells of %d series, want each of 3 once:\n%s", got, said.String())
	}
}

func FuzzParseLabels(f *testing.F) {
	f.Add(`a="b"`)
	f.Add(`receiver="a\\b\"c\nd",result="sent"`)
	f.Add(`a="`)
	f.Add(`a=""b="`)
	f.Fuzz(func(t *testing.T, s string) {
		names, values, err := parseLabels(s)
		if err == nil && len(names) != len(values) {
			t.Errorf("%d names and %d values", len(names), len(values))
		}
	})
}

func FuzzCounterComesBack(f *testing.F) {
	f.Add("slack", "sent")
	f.Add("a\\b\"c\nd,e=\"f\" g", "\xff")
	l := newLayout(false)
	f.Fuzz(func(t *testing.T, receiver, result string) {
		d, values, err := l.parse(metric.NotificationsSent.Series(receiver, result))
		if err != nil || d != metric.NotificationsSent {
			t.Fatalf("%v, %v", d, err)
		}
		for i, want := range []string{receiver, result} {
			if got := values[i]; got != strings.ToValidUTF8(want, "\uFFFD") {
				t.Errorf("label %q came back as %q", want, got)
			}
		}
	})
}
