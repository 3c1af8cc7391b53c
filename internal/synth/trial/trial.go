// Package trial judges the detectors by synthetic fleets: whether each fault of a
// stated size is found and by which rule, whether look-alikes stay silent, and how often
// healthy nodes raise an alarm. What it measures is synthetic.
package trial

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"gpuvigil/detect"
	"gpuvigil/internal/backtest"
	"gpuvigil/internal/synth"
	"gpuvigil/rules"
)

// Options say how the engines run.
type Options struct {
	Seed      uint64
	Step      time.Duration // between snapshots; 1 min
	GPUs      int           // of the fleet that the nodes are of, over which the alert budget is divided; 0: only the node's
	Settings  map[rules.ID]detect.Setting
	Detectors detect.DetectorConfig
	Cluster   detect.FleetConfig

	cluster bool // the engine is that of the cluster's one role
}

// forCase tells the detectors what the case's users have declared.
func (o Options) forCase(c *synth.Case) Options {
	if c.Alone {
		o.GPUs = 0
	}
	o.cluster = c.Life == synth.ClusterStage
	if c.Controlled {
		o.Detectors.Isolation.Controlled, o.Detectors.UnknownUse.Controlled = true, true
	}
	if c.Capped {
		o.Detectors.Spend.CapLabel = synth.CapLabel
	}
	o.Detectors.Saturated.QueueTimeSLO = c.Objective
	o.Cluster.Waiting.SLO = c.Wait
	return o
}

// start is when all nodes begin: a Monday, so that weeks have weekends.
var start = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

// tail is for how long a node is watched after a case has ended.
const tail = 90 * time.Minute

// Result is what came of one case on one node.
type Result struct {
	Case *synth.Case
	backtest.Judgement
	Watched  time.Duration  // times GPUs
	Verdicts map[string]int // of the GPUs concerned, in the second half of the case, by snapshots
}

// engine returns an engine as a real agent has it.
func (o Options) engine() *detect.Engine {
	if o.cluster {
		return detect.NewEngine(detect.Config{Settings: o.Settings, Node: "cluster"}, detect.FleetDetectors(o.Cluster))
	}
	return detect.NewEngine(detect.Config{Settings: o.Settings, Budget: detect.Budget{GPUs: o.GPUs}}, detect.Detectors(o.Detectors))
}

// Run lives through one case on a node of its own.
func (o Options) Run(c *synth.Case, number int) (_ *Result, err error) {
	o = o.forCase(c)
	// Within a week: what is wrong with a month's budget is so early in the month.
	from := start.Add(8*time.Hour + time.Duration(number)*37*time.Minute%(7*24*time.Hour))
	t := &synth.Trial{Case: c, From: from.Add(c.Learn + c.Warm), To: from.Add(c.Learn + c.Warm + c.Lasts)}
	board := synth.H100
	if number%4 == 3 && !c.Activity {
		board = synth.A100
	}
	n := synth.New(synth.Config{Seed: o.Seed, Name: fmt.Sprintf("synth-%02d", number), Start: from, Step: o.Step, Board: board, Life: c.Life, Trial: t})
	gpus, owners := n.Concerned(c)
	r := &Result{Case: c, Verdicts: map[string]int{}}
	a, err := o.newAgent()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	w := a.watch
	for !n.Now().After(t.To.Add(tail)) {
		if c.Budget > 0 && !a.planned && !(c.Late && n.Now().Before(t.From)) {
			a.plan(n.Team(), c.Budget)
		}
		if err := a.observe(n); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		if len(c.Verdicts) > 0 && n.Now().After(t.From.Add(c.Lasts/2)) && n.Now().Before(t.To) {
			r.ask(w.Engine.View(), gpus)
		}
	}
	var truths []backtest.Truth
	if !c.Healthy() {
		truths = append(truths, backtest.Truth{Kind: c.Name, Subjects: append(gpus, owners...), Rules: c.Rules, Also: append([]rules.ID{"unusual"}, c.Also...), Least: least(c), From: t.From, To: t.To})
	}
	r.Judgement, r.Watched = backtest.Judge(truths, w.Told()), w.Watched
	return r, nil
}

// least is the severity that a finding of the case must have.
func least(c *synth.Case) rules.Severity {
	if c.Digest {
		return rules.Info
	}
	return rules.Ticket
}

// ask notes the verdicts of the GPUs concerned.
func (r *Result) ask(v *detect.View, gpus []string) {
	for i := range v.Verdicts {
		if slices.Contains(gpus, v.Verdicts[i].GPU) {
			r.Verdicts[string(v.Verdicts[i].Name)]++
		}
	}
}

// Cases runs all cases, each so many times, and returns the results in the order of
// the cases. The same options give the same results.
func (o Options) Cases(cases []*synth.Case, times int) ([]*Result, error) {
	out := make([]*Result, len(cases)*times)
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range out {
		group.Go(func() (err error) {
			out[i], err = o.Run(cases[i/times], i)
			return err
		})
	}
	return out, group.Wait()
}

// lives is how a fleet's nodes are used, in turn.
var lives = []synth.Life{synth.Training, synth.Serving, synth.Training, synth.Mixed, synth.Serving, synth.Training, synth.Mixed, synth.Empty}

// Fleet watches healthy nodes for so long and returns the figures of the alarms, all
// of which are false, and the incidents.
func (o Options) Fleet(nodes int, lasts time.Duration) (backtest.Figures, []backtest.Told, error) {
	judged, told := make([]backtest.Figures, nodes), make([][]backtest.Told, nodes)
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range nodes {
		group.Go(func() (err error) {
			board := synth.H100
			if i%4 == 3 {
				board = synth.A100
			}
			from := start.Add(time.Duration(i%24) * time.Hour)
			n := synth.New(synth.Config{Seed: o.Seed, Name: fmt.Sprintf("fleet-%04d", i), Start: from, Step: o.Step, Board: board, Life: lives[i%len(lives)]})
			a, err := o.newAgent()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, a.close()) }()
			for n.Now().Before(from.Add(lasts)) {
				if err := a.observe(n); err != nil {
					return err
				}
			}
			j := backtest.Judge(nil, a.watch.Told())
			told[i] = j.False
			judged[i].Add(j, a.watch.Watched)
			return nil
		})
	}
	err := group.Wait()
	var all backtest.Figures
	var incidents []backtest.Told
	for i := range judged {
		all.Join(judged[i])
		incidents = append(incidents, told[i]...)
	}
	return all, incidents, err
}
