package child

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gpuvigil/collector"
)

// lockedBuffer is a log that several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestBackoff(t *testing.T) {
	c := New(Config{Log: discard})
	var got []time.Duration
	for range 8 {
		got = append(got, c.delay(ending{reason: Exited}, time.Second)/time.Second)
	}
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		if got[i] != want {
			t.Errorf("the waits are %d s, want 1 2 4 … 60 60", got)
			break
		}
	}
	if d := c.delay(ending{reason: Exited}, time.Minute); d != time.Second {
		t.Errorf("after a healthy minute the wait is %v, want 1s", d)
	}
	c.delay(ending{reason: InitHung}, 0)
	if d := c.delay(ending{reason: DriverChanged}, 0); d != time.Second {
		t.Errorf("after a driver change the wait is %v, want 1s", d)
	}
	if d := c.delay(ending{noDriver: true}, 0); d != time.Minute {
		t.Errorf("without a driver the wait is %v, want 1m", d)
	}
}

func TestSilenceIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{Log: discard})
		ctx := t.Context()
		for _, step := range []struct {
			before func()
			says   string
		}{
			{func() {}, "has been stopped for 2s"},
			{func() { c.set(Starting, nil) }, "has been starting for 2s"},
			{func() { c.deliver(&collector.Part{}); c.take() }, "has not sent a frame for 2s"},
		} {
			step.before()
			limited, cancel := context.WithTimeout(ctx, 2*time.Second)
			_, err := c.Sample(limited)
			cancel()
			if err == nil || !strings.Contains(err.Error(), step.says) {
				t.Errorf("Sample says %v, want %q", err, step.says)
			}
		}
	})
}

func TestEventsWithoutASamplerAreBounded(t *testing.T) {
	c := New(Config{Log: discard})
	for i := range maxEvents + 5 {
		c.deliver(&collector.Part{Events: []collector.Event{{Code: i}}})
	}
	p, _, _ := c.take()
	if len(p.Events) != maxEvents || p.Events[0].Code != 5 {
		t.Errorf("%d events are kept from number %d, want the newest %d", len(p.Events), p.Events[0].Code, maxEvents)
	}
}

func TestHealth(t *testing.T) {
	ok, hung, lost := collector.GPU{Present: true}, collector.GPU{Present: true, Hung: true}, collector.GPU{}
	start := time.Now()
	for name, tc := range map[string]struct {
		gpus []collector.GPU
		want bool
	}{
		"no GPU":            {nil, false},
		"one answers":       {[]collector.GPU{hung, ok}, false},
		"all lost":          {[]collector.GPU{lost, lost}, false},
		"all hung":          {[]collector.GPU{hung, hung}, true},
		"hung and lost":     {[]collector.GPU{hung, lost}, true},
		"hung, not present": {[]collector.GPU{{Hung: true}}, true},
	} {
		h := health{limit: time.Minute}
		part := &collector.Part{GPUs: tc.gpus}
		if h.hung(part, start) || h.hung(part, start.Add(59*time.Second)) {
			t.Errorf("%s: the child is replaced before its limit", name)
		}
		if got := h.hung(part, start.Add(time.Minute)); got != tc.want {
			t.Errorf("%s: after its limit the child is replaced: %v, want %v", name, got, tc.want)
		}
	}
	h := health{limit: time.Minute}
	h.hung(&collector.Part{GPUs: []collector.GPU{hung}}, start)
	h.hung(&collector.Part{GPUs: []collector.GPU{ok}}, start.Add(50*time.Second))
	if h.hung(&collector.Part{GPUs: []collector.GPU{hung}}, start.Add(70*time.Second)) {
		t.Error("a GPU that answered in between does not start the limit anew")
	}
}

func TestRelay(t *testing.T) {
	var log lockedBuffer
	r := &relay{log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	in := "time=1 level=debug msg=a\n\n{\"level\":\"ERROR\",\"msg\":\"b\"}\nraw \x1b[31m\xff\u009b\u202eb\n" +
		strings.Repeat("x", 3*maxLine) + "\n" + strings.Repeat("again\n", 500) + "the end without a newline"
	r.copy(strings.NewReader(in), 7)
	got := log.String()
	for _, want := range []string{"level=DEBUG msg=\"the child says\" pid=7 line=\"time=1 level=debug msg=a\"", "level=ERROR", "level=WARN msg=\"the child says\" pid=7 line=\"raw [31m\uFFFD b\"", "x …"} {
		if !strings.Contains(got, want) {
			t.Errorf("the log does not have %s", want)
		}
	}
	if n := strings.Count(got, "the child says"); n != maxBurst {
		t.Errorf("of %d lines in one burst %d were logged, want %d", 505, n, maxBurst)
	}
	if len(got) > maxLine+maxBurst*200 {
		t.Errorf("the log has %d bytes", len(got))
	}
	if r.lastLine() != "the end without a newline" {
		t.Errorf("the last line is %q", r.lastLine())
	}
	r.copy(strings.NewReader(LastWords+"there is no driver\n"), 8)
	if strings.Contains(log.String(), "no driver") || r.lastLine() != "there is no driver" {
		t.Errorf("why a child ends is said before its end, or is lost: its last line is %q", r.lastLine())
	}
}

func TestSecretsAreNotPassed(t *testing.T) {
	for name, want := range map[string]bool{
		"PATH": true, "PATHS": false, "NVIDIA_VISIBLE_DEVICES": true, "NVIDIA_DRIVER_CAPABILITIES": true, "NVIDIA_API_KEY": false,
		"NVIDIA_NGC_TOKEN": false, "nvidia_x": false, "SLACK_BOT_TOKEN": false, "FAKENVML_FILE": true, "AWS_SECRET_ACCESS_KEY": false,
	} {
		if got := isPassed(name); got != want {
			t.Errorf("the child gets %s: %v, want %v", name, got, want)
		}
	}
}
