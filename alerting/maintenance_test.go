package alerting_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	vm "github.com/VictoriaMetrics/metrics"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/alertmanager/matcher/parse"

	"gpuvigil/alerting"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
)

func (b *routingBench) begin(name string, d time.Duration, matchers ...string) {
	b.t.Helper()
	if err := b.outbox.BeginMaintenance(alerting.Begun{Name: name, Matchers: matchers, To: time.Now().Add(d), By: "ana"}); err != nil {
		b.t.Fatal(err)
	}
}

func TestMaintenanceThatSomebodyBeginsHoldsOverARestartAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRoutingBench(t)
		b.start()
		b.begin("driver", 2*time.Hour, `node=~"gpu-1.*"`)
		b.tell(page("a", detect.Firing), routingOf(page("elsewhere", detect.Firing), "lab-7", ""))
		if m := b.only("what is not all maintained is told"); m.Incident.ID != "elsewhere" {
			t.Errorf("told is %s", m.Incident.ID)
		}
		b.end()
		b.start()
		time.Sleep(time.Second)
		open := []detect.Incident{b.now["a"], b.now["elsewhere"]}
		all := b.outbox.Maintenance(open)
		if len(all) != 1 || all[0].Name != "driver" || all[0].By != "ana" || !all[0].Holds || all[0].Keeps != 1 || !cmp.Equal(all[0].Matchers, []string{`node=~"gpu-1.*"`}) {
			t.Errorf("after a restart the windows are %+v", all)
		}
		if n := vm.GetOrCreateGauge(metric.MaintenanceWindows.Series("command"), nil).Get(); n != 1 {
			t.Errorf("the metric counts %v windows that somebody has begun", n)
		}
		time.Sleep(time.Hour)
		b.nothing("the window still holds")
		time.Sleep(61 * time.Minute)
		if m := b.only("it still fires when the window is over"); m.Incident.ID != "a" {
			t.Errorf("told is %s", m.Incident.ID)
		}
		if all := b.outbox.Maintenance(nil); len(all) != 0 {
			t.Errorf("a window that is over is shown: %+v", all)
		}
		b.end()
	})
}

func TestMaintenanceThatIsEndedTellsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRoutingBench(t)
		b.start()
		b.begin("driver", 24*time.Hour, `cluster=~".*"`)
		b.tell(page("a", detect.Firing))
		b.nothing("everything is maintained")
		if err := b.outbox.EndMaintenance("driver"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		b.only("five seconds after the end")
		b.end()
		b.start()
		if all := b.outbox.Maintenance(nil); len(all) != 0 {
			t.Errorf("a window that was ended is back after a restart: %+v", all)
		}
		b.end()
	})
}

func TestMaintenanceThatMakesNoSenseIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRoutingBench(t)
		ms, err := parse.Matchers(`node="x"`)
		if err != nil {
			t.Fatal(err)
		}
		b.cfg.Maintenance = []alerting.Window{{Name: "sundays", Matchers: ms, From: time.Now(), To: time.Now().Add(time.Hour)}}
		b.start()
		f := func(name string, d time.Duration, matcher, want string) {
			t.Helper()
			begun := alerting.Begun{Name: name, To: time.Now().Add(d), By: "ana"}
			if matcher != "" {
				begun.Matchers = []string{matcher}
			}
			if err := b.outbox.BeginMaintenance(begun); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q for %s with %q: %v, want %q", name, d, matcher, err, want)
			}
		}
		f("", time.Hour, `node="x"`, "no name")
		f("a", time.Hour, "", "not said of what")
		f("a", time.Hour, "node", "allowed: a matcher")
		f("a", 0, `node="x"`, "at most 30 d")
		f("a", 31*24*time.Hour, `node="x"`, "at most 30 d")
		f("sundays", time.Hour, `node="x"`, "window of the configuration")
		if err := b.outbox.EndMaintenance("sundays"); err == nil || !strings.Contains(err.Error(), "in the configuration") {
			t.Errorf("the end of a configured window: %v", err)
		}
		if err := b.outbox.EndMaintenance("a"); err == nil || !strings.Contains(err.Error(), "nobody has begun one") {
			t.Errorf("the end of what was never begun: %v", err)
		}
		b.begin("b", time.Hour, `node="x"`)
		f("b", time.Hour, `node="y"`, `a window is called so, of node="x"`)
		b.begin("b", 2*time.Hour, `node="x"`) // the same again only takes longer
		if err := b.outbox.EndMaintenance("a"); err == nil || !strings.Contains(err.Error(), `there are "b"`) {
			t.Errorf("the end of one with another name: %v", err)
		}
		if all := b.outbox.Maintenance(nil); len(all) != 2 || all[0].By != "" || all[1].By != "ana" {
			t.Errorf("windows are %+v", all)
		}
		b.end()
	})
}

// Between the end of a window and the next look at what it kept back, the engine may say
// more.
func TestAStateThatComesAsSoonAsMaintenanceIsOverIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRoutingBench(t)
		b.start()
		time.Sleep(time.Second)
		b.begin("driver", 92*time.Second, `node=~".*"`)
		b.tell(page("a", detect.Firing))
		time.Sleep(63 * time.Second)
		b.nothing("the window has been over for a second, and nobody has looked yet")
		b.tell(page("a", detect.Firing))
		if m := b.only("the newest state"); m.Incident.ID != "a" {
			t.Errorf("told is %s", m.Incident.ID)
		}
		b.end()
	})
}
