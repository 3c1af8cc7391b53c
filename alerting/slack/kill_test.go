package slack_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/alerting/slack"
	"gpuvigil/alerting/slack/slacktest"
	"gpuvigil/detect"
	"gpuvigil/internal/store"
	"gpuvigil/rules"
)

// What makes this test's binary an agent that can be killed.
const (
	victimState = "CHAOS_STATE" // its state file
	victimAPI   = "CHAOS_API"   // the stand-in's address
	victimToken = "CHAOS_TOKEN" // the file that the token is in
)

func TestMain(m *testing.M) {
	if os.Getenv(victimState) == "" {
		os.Exit(m.Run())
	}
	if err := beVictim(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// order is what a victim is told to do: to say something, or to have a full disk.
type order struct {
	Say  *detect.Incident `json:"say,omitempty"`
	Full *bool            `json:"full,omitempty"`
}

// report is what it answers.
type report struct {
	Stored bool
	Status alerting.Status
}

// beVictim is an agent's way from the engine to Slack. It ends when nobody gives orders.
func beVictim(orders io.Reader, reports io.Writer) error {
	signal.Ignore(syscall.SIGXFSZ)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	st, err := store.Open(os.Getenv(victimState), 10*time.Second, log)
	if err != nil {
		return err
	}
	b, err := slack.NewBot(slack.BotConfig{Channel: channel, APIURL: os.Getenv(victimAPI), Log: log, Charts: true,
		Token: func() (string, error) { text, err := os.ReadFile(os.Getenv(victimToken)); return string(text), err }})
	if err != nil {
		return err
	}
	cfg := alerting.OutboxConfig{Log: log, Pause: time.Millisecond, Backoff: 2 * time.Millisecond, MaxBackoff: 50 * time.Millisecond,
		Chart: func(*detect.Incident) *alerting.Chart { return drawn() }}
	o, err := alerting.NewOutbox(st, cfg, alerting.Receiver{Name: "victim", Notifier: b, MinSeverity: rules.Ticket})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- o.Run(ctx) }()
	in, out := json.NewDecoder(orders), json.NewEncoder(reports)
	for {
		var what order
		if err := in.Decode(&what); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		r := report{}
		switch {
		case what.Full != nil:
			err = room(!*what.Full)
		case what.Say != nil:
			o.Take([]detect.Incident{*what.Say})
			r.Stored = st.Update(o.WriteTx) == nil
		}
		if err != nil {
			return err
		}
		r.Status = o.Status()[0]
		if err := out.Encode(r); err != nil {
			return err
		}
	}
	cancel()
	return errors.Join(<-done, st.Close())
}

// room decides whether files may be written to.
func room(yes bool) error {
	limit := syscall.Rlimit{Cur: 1, Max: 1 << 30}
	if yes {
		limit.Cur = limit.Max
	}
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
}

// TestChaosKill kills the agent with signal 9 at any point, also in the middle of a call
// to Slack, while the disk fills up, the token is replaced and Slack fails in all ways,
// and then compares what the channel shows with what was acknowledged.
func TestChaosKill(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			newMurder(t, seed).play()
		})
	}
}

// murder is one order of failures with a process that is killed.
type murder struct {
	*truth
	t     *testing.T
	slack *slacktest.Server
	log   *journal
	dir   string
	full  bool // the disk is

	victim  *exec.Cmd
	process atomic.Pointer[os.Process] // of the victim
	orders  io.WriteCloser
	reports *bufio.Scanner
	alive   bool
}

func newMurder(t *testing.T, seed uint64) *murder {
	m := &murder{truth: newTruth(rand.New(rand.NewPCG(seed, 2))), t: t, slack: standIn(t), log: &journal{}, dir: t.TempDir()}
	m.setToken(slacktest.Token)
	return m
}

func (m *murder) setToken(token string) {
	if err := os.WriteFile(filepath.Join(m.dir, "token"), []byte(token), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *murder) start() {
	m.t.Helper()
	self, err := os.Executable()
	if err != nil {
		m.t.Fatal(err)
	}
	m.victim = exec.CommandContext(m.t.Context(), self)
	m.victim.Env = append(os.Environ(), victimState+"="+filepath.Join(m.dir, "state.db"), victimAPI+"="+m.slack.APIURL(), victimToken+"="+filepath.Join(m.dir, "token"))
	m.victim.Stderr = m.log
	if m.orders, err = m.victim.StdinPipe(); err != nil {
		m.t.Fatal(err)
	}
	out, err := m.victim.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	m.reports = bufio.NewScanner(out)
	m.reports.Buffer(nil, 1<<20)
	if err := m.victim.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.process.Store(m.victim.Process)
	m.alive, m.full = true, false
	for _, i := range m.killed() {
		m.say(i)
	}
}

// bury waits for a victim that was killed.
func (m *murder) bury() {
	for m.reports.Scan() { // until nobody writes any more
	}
	_ = m.orders.Close()
	var exit *exec.ExitError
	if err := m.victim.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		m.t.Fatalf("the agent was not killed but ended by itself: %v\n%s", err, m.log)
	}
	m.alive = false
}

// order gives an order and returns the report; false if the victim is dead.
func (m *murder) order(o order) (r report, ok bool) {
	if !m.alive {
		return r, false
	}
	raw, err := json.Marshal(o)
	if err == nil {
		_, err = m.orders.Write(append(raw, '\n'))
	}
	if err == nil && m.reports.Scan() {
		if err := json.Unmarshal(m.reports.Bytes(), &r); err != nil {
			m.t.Fatal(err)
		}
		return r, true
	}
	m.bury()
	return r, false
}

func (m *murder) say(i detect.Incident) {
	m.unsaved[i.ID] = i
	if r, ok := m.order(order{Say: &i}); ok && r.Stored {
		m.acknowledge(i)
	}
}

func (m *murder) play() {
	m.start()
	for kills := 0; kills < 8; {
		m.say(m.move(m.pick()))
		if m.alive && m.rnd.IntN(2) == 0 {
			m.breakOne()
		}
		time.Sleep(time.Duration(m.rnd.IntN(6)) * time.Millisecond)
		if !m.alive {
			kills++
			m.start()
		}
	}
	m.slack.Recover()
	m.setToken(slacktest.Token)
	m.settle()
	if err := m.orders.Close(); err != nil {
		m.t.Error(err)
	}
	if err := m.victim.Wait(); err != nil {
		m.t.Errorf("the agent did not end well: %v\n%s", err, m.log)
	}
	m.check(m.t, m.slack)
	noSecret(m.t, "the log", m.log.String())
}

// settle makes room, and lets the victim say all that it has to.
func (m *murder) settle() {
	m.fill(false)
	m.wait("Slack takes messages again", func(s alerting.Status) bool {
		m.say(m.move(m.pick()))
		return s.LastError == "" && len(s.Refused) == 0
	})
	for id := range m.said {
		if !m.alive {
			m.start()
		}
		if i := m.said[id]; i.State == detect.Firing && m.rnd.IntN(2) == 0 {
			m.say(m.end(i))
		}
	}
	m.wait("all is said", func(s alerting.Status) bool { return s.Waiting == 0 && s.Unsaved == 0 && len(s.Refused) == 0 })
}

func (m *murder) fill(full bool) {
	m.full = full
	m.order(order{Full: &full})
}

func (m *murder) wait(what string, ok func(alerting.Status) bool) {
	m.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if !m.alive { // a kill that was due in a call of Slack
			m.start()
		}
		r, alive := m.order(order{})
		if alive && ok(r.Status) {
			return
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("after two minutes it is not so that %s: %+v\n%s", what, r.Status, m.log)
		}
	}
}

func (m *murder) breakOne() {
	method := []string{"", "chat.postMessage", "chat.update", "conversations.history", "conversations.replies", "files.completeUploadExternal"}[m.rnd.IntN(6)]
	once := func(a slacktest.Answer) { m.slack.Answer(method, a) }
	kill := func() { _ = m.process.Load().Kill() } // it may be dead already
	switch m.rnd.IntN(10) {
	case 0:
		once(slacktest.Answer{Status: 500, Body: "rollup_error"})
	case 1:
		once(slacktest.Answer{Status: 502, Done: true})
	case 2:
		once(slacktest.Answer{Hangup: true, Done: m.rnd.IntN(2) == 0})
	case 3:
		for range m.rnd.IntN(3) {
			m.slack.Answer("chat.update", slacktest.Answer{Status: 429, Header: http.Header{"Retry-After": {"1"}}})
		}
	case 4:
		m.slack.SetDown(m.rnd.IntN(2) == 0)
	case 5:
		m.slack.SetToken(fmt.Sprint("xoxb-", m.rnd.IntN(1e9)))
	case 6:
		m.setToken(m.slack.Token())
	case 7:
		m.fill(!m.full)
	case 8: // in the middle of a call, that Slack has carried out or not
		if !m.full {
			once(slacktest.Answer{Then: kill, Hangup: true, Done: m.rnd.IntN(3) > 0})
		}
	case 9:
		if m.full { // what only memory has, a kill may lose
			m.fill(false)
		}
		kill()
	}
}
