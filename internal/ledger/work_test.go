package ledger

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/price"
	"gpuvigil/internal/store"
)

// training is a job on all GPUs of a node that tells of its steps.
type training struct {
	*bench
	now        time.Time
	gpus       int
	pid        int // 0: it has no process
	step       float64
	progress   time.Time
	checkpoint time.Time // zero: it tells of none
	finished   bool
	silent     bool // its file is gone
}

func newTraining(t *testing.T) *training {
	t.Helper()
	w := &training{bench: newBench(t, price.Config{Own: []price.Own{{GPU: "*", PerHour: 3.6, Currency: "USD", Kind: price.Contracted}}}), now: start, gpus: 2, pid: 1}
	w.look()
	return w
}

func (w *training) look() {
	n := at(w.now, w.gpus)
	for i := range n.GPUs {
		n.GPUs[i].Allocations = []collector.Allocation{{UUID: n.GPUs[i].UUID, Owner: train}}
		if w.pid > 0 {
			n.process(i, "", train, 1, 1)
			n.Processes[len(n.Processes)-1].PID, n.Processes[len(n.Processes)-1].Start = w.pid, uint64(w.pid)
			n.GPUs[i].Set(metric.SMActivity, 1)
		}
	}
	told := collector.Workload{Owner: train, Readings: collector.NewReadings(metric.Workload)}
	if !w.silent && w.step > 0 {
		told.Set(metric.WorkloadStep, w.step)
		told.Set(metric.WorkloadSteps, w.step)
		told.Set(metric.WorkloadProgress, float64(w.progress.UnixNano())/1e9)
		if !w.checkpoint.IsZero() {
			told.Set(metric.WorkloadCheckpoint, float64(w.checkpoint.UnixNano())/1e9)
		}
		told.Set(metric.WorkloadFinished, map[bool]float64{true: 1}[w.finished])
	}
	n.Workloads = []collector.Workload{told}
	w.Observe(n.Snapshot)
}

// pass lets seconds pass, with a step in each if it works.
func (w *training) pass(seconds int, works bool) {
	for range seconds {
		w.now = w.now.Add(time.Second)
		if works {
			w.step++
			w.progress = w.now
		}
		w.look()
	}
}

// judged returns GPU-seconds that were kept, lost and are open, and interruptions.
func (w *training) judged() [4]float64 {
	r := w.runs[train]
	if r == nil {
		return [4]float64{}
	}
	return [4]float64{time.Duration(r.Work.Kept).Seconds(), time.Duration(r.Work.Lost).Seconds(), time.Duration(r.Open).Seconds(), float64(r.Work.Interruptions)}
}

func (w *training) want(what string, want [4]float64) {
	w.t.Helper()
	got := w.judged()
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-3 {
			w.t.Errorf("%s: GPU-seconds kept, lost, open and interruptions are %v, want %v", what, got, want)
			return
		}
	}
}

// On two GPUs. A minute after the first step a checkpoint is complete; 30 s later all
// processes are replaced, and the job goes on 20 s after that from the checkpoint.
func TestWhatAnInterruptionLoses(t *testing.T) {
	w := newTraining(t)
	w.pass(1, true) // from here on it tells
	w.checkpoint = start
	w.pass(60, true)
	w.want("a minute without a checkpoint", [4]float64{0, 0, 120, 0})
	w.checkpoint = w.now
	w.pass(30, true)
	w.want("30 s after it", [4]float64{120, 0, 60, 0})
	w.pid++
	w.pass(1, false)
	w.want("its processes are others", [4]float64{120, 62, 0, 1})
	w.pass(19, false)
	w.step -= 30
	w.pass(1, false)
	w.want("20 s later it is back at the checkpoint, which is no second interruption", [4]float64{120, 102, 0, 1})
	w.pass(10, true)
	w.want("from the next step on nothing more is lost", [4]float64{120, 104, 18, 1})
	if cost := w.runs[train].Work.LostCost; math.Abs(float64(cost)/1e9-0.104) > 1e-6 {
		t.Errorf("104 GPU-seconds at 3.60 an hour are lost, booked are %v", float64(cost)/1e9)
	}
	w.finished = true
	w.pass(1, true)
	w.pid = 0
	w.pass(70, false)
	got := w.judged()
	if got[1] != 104 || got[3] != 1 {
		t.Errorf("a job that said that it has finished lost something as it ended: %v", got)
	}
}

func TestEndWithoutWord(t *testing.T) {
	w := newTraining(t)
	w.pass(31, true)
	w.pid = 0
	w.pass(30, false)
	w.want("no checkpoint is told, so progress confirms; 30 s without a process", [4]float64{60, 0, 60, 0})
	w.pass(60, false)
	if got := w.judged(); got[0] != 60 || got[3] != 1 || math.Abs(got[1]-180) > 4 {
		t.Errorf("it ended and did not say that it has finished: %v", got)
	}
}

func TestWorkSurvivesARestart(t *testing.T) {
	w := newTraining(t)
	w.pass(20, true)
	w.write()
	before := w.judged()
	w.restart()
	if got := w.judged(); got != before {
		t.Errorf("kept, lost, open and interruptions were %v, after a restart they are %v", before, got)
	}
	w.now = w.now.Add(time.Hour)
	w.step, w.pid = 10, 7
	w.pass(1, true)
	if got := w.judged(); got[3] != 1 {
		t.Errorf("while the agent was down the job went back from step 20 to 11, and %v interruptions were counted", got[3])
	}
	if w.silent = true; len(w.Export().Work) != 1 {
		t.Errorf("the export has the work of %d owners", len(w.Export().Work))
	}
}

// What is kept, lost and open sums to what was held since it first told, whatever
// happens; hours sum to the whole, and no counter goes back.
func TestGoodputAndLostAreWhatWasHeld(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := newTraining(t)
		w.pass(1, true)
		w.write()
		from := held(w)
		var last cost.Work
		for range 400 {
			switch r.IntN(30) {
			case 0:
				w.pid = r.IntN(3)
			case 1:
				w.step = math.Floor(w.step * r.Float64())
			case 2, 3:
				w.checkpoint = w.now.Add(-time.Duration(r.IntN(90)) * time.Second)
			case 4:
				w.finished = !w.finished
			case 5:
				w.silent = !w.silent
			case 6:
				w.write()
			case 7:
				w.write()
				w.restart()
			case 8:
				_ = w.store.Update(func(tx *store.Tx) error {
					if err := w.WriteTx(tx); err != nil {
						t.Error(err)
					}
					return errDisk
				})
			case 9: // killed: what it had not written is gone, of all of it alike
				w.restart()
				last = w.runs[train].Work
			case 10:
				w.now = w.now.Add(time.Duration(r.IntN(60)) * time.Second)
			}
			w.pass(1+r.IntN(10), r.IntN(3) > 0)
			now := w.runs[train].Work
			if now.Kept < last.Kept || now.Lost < last.Lost || now.LostCost < last.LostCost || now.Units[cost.Steps] < last.Units[cost.Steps] {
				t.Fatalf("seed %d: what was %+v went back to %+v", seed, last, now)
			}
			last = now
		}
		w.write()
		run := w.runs[train]
		if got, want := run.Work.Kept+run.Work.Lost+run.Open, held(w)-from; got != want {
			t.Errorf("seed %d: kept %d + lost %d + open %d are %d ns less than the %d that were held", seed, run.Work.Kept, run.Work.Lost, run.Open, want-got, want)
		}
		var sum cost.Work
		for _, row := range w.costs().Work {
			sum = sum.Plus(row.Work)
		}
		if sum != run.Work {
			t.Errorf("seed %d: hours sum to %+v, the whole is %+v", seed, sum, run.Work)
		}
	}
}

func held(w *training) (ns int64) {
	for k, a := range w.accounts {
		if k.Owner == train {
			ns += a.Time
		}
	}
	return ns
}

// Two GPUs at 3.60 an hour come to 0.72 in six minutes: 0.002 for each of the 360
// requests, 20 for a million of the 36,000 tokens.
func TestUnitCostsByHand(t *testing.T) {
	b := newBench(t, price.Config{Own: []price.Own{{GPU: "*", PerHour: 3.6, Currency: "USD", Kind: price.Contracted}}})
	look := func(second int) {
		n := at(start.Add(time.Duration(second)*time.Second), 2)
		e := collector.Endpoint{URL: "http://a/metrics", Engine: "vllm", Model: "m", Readings: collector.NewReadings(metric.Endpoint)}
		for i := range n.GPUs {
			n.process(i, "", chat, 1, 1)
			n.GPUs[i].Set(metric.SMActivity, 1)
			n.GPUs[i].Set(metric.Energy, 500*float64(second))
			e.GPUs = append(e.GPUs, n.GPUs[i].UUID)
		}
		e.Set(metric.GeneratedTokens, 1e6+100*float64(second))
		e.SetAt(metric.Requests, 0, 5000+float64(second))
		e.SetAt(metric.Requests, 1, 900+float64(second)) // errors are no work
		n.Endpoints = []collector.Endpoint{e}
		b.Observe(n.Snapshot)
	}
	unit := func() cost.OwnerWork {
		b.write()
		i := slices.IndexFunc(b.Export().Work, func(w cost.OwnerWork) bool { return w.Owner == chat })
		if i < 0 {
			t.Fatal("the server's work is not exported")
		}
		return b.Export().Work[i]
	}
	for s := range 200 {
		look(s)
	}
	if got := unit(); !math.IsNaN(got.UnitCost[cost.Requests]) || got.Tells {
		t.Errorf("after 200 s a request costs %v; it tells of its progress %v", got.UnitCost[cost.Requests], got.Tells)
	}
	for s := 200; s <= 361; s++ {
		look(s)
	}
	got := unit()
	if got.Units != [cost.Units]int64{cost.Tokens: 36100, cost.Requests: 361} {
		t.Errorf("work %v, want 36,100 tokens and 361 requests", got.Units)
	}
	for what, c := range map[string][2]float64{
		"cost of a request": {got.UnitCost[cost.Requests], 0.002}, "cost of a million tokens": {got.UnitCost[cost.Tokens], 20},
		"energy of a request": {got.UnitEnergy[cost.Requests], 1000}, "energy of a million tokens": {got.UnitEnergy[cost.Tokens], 1e7},
		"cost of a step": {got.UnitCost[cost.Steps], math.NaN()},
	} {
		if math.Abs(c[0]-c[1]) > 0.01*c[1] || math.IsNaN(c[0]) != math.IsNaN(c[1]) {
			t.Errorf("%s is %v, by hand %v", what, c[0], c[1])
		}
	}
}

func TestUnitCostIsAbsentWithoutAPrice(t *testing.T) {
	var w window
	for m := range 30 {
		w.cost(start.Add(time.Duration(m)*time.Minute), cost.Amounts{Time: 6e10, Unpriced: 1, Energy: 1e9})
		w.work(start.Add(time.Duration(m)*time.Minute), cost.Work{Units: [cost.Units]int64{1}})
	}
	money, energy := w.units(start.Add(30 * time.Minute))
	if !math.IsNaN(money[0]) || energy[0] != 1000 {
		t.Errorf("a step costs %v, of which part has no price, and %v J", money[0], energy[0])
	}
	if money, energy = w.units(start.Add(5 * time.Hour)); !math.IsNaN(energy[0]) || !math.IsNaN(money[0]) {
		t.Errorf("hours after the last step one takes %v J", energy[0])
	}
}

// A team spends 2 × 86.40 on each day but the third, on which it spends half.
func TestMonthOfATeam(t *testing.T) {
	first := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	b := newBench(t, price.Config{Own: []price.Own{{GPU: "*", PerHour: 3.6, Currency: "USD", Kind: price.Contracted}}})
	b.cfg.Budgets = []cost.Budget{{Team: "idle", Currency: "USD", PerMonth: 5}}
	b.restart()
	for s := 0; s <= 5*86400; s += 10 {
		n := at(first.Add(time.Duration(s)*time.Second), 2)
		n.Sources[0].Interval, n.Sources[1].Interval = 10*time.Second, 10*time.Second
		n.process(0, "", train, 1, 1)
		if s < 2*86400 || s >= 3*86400 {
			n.process(1, "", train, 1, 1)
		}
		b.Observe(n.Snapshot)
	}
	b.write()
	check := func(when string) {
		t.Helper()
		months := b.Export().Months
		if len(months) != 3 || months[0].Team != "idle" || months[0].Spent != 0 || months[1].Team != train.Team || months[2].Team != "unattributed" {
			t.Fatalf("%s: months %+v, want those of nlp, of the team that has a budget only, and of what was nobody's", when, months)
		}
		if sum := months[1].Spent + months[2].Spent; math.Abs(sum-5*172.8) > 0.01 {
			t.Errorf("%s: teams sum to %v, two GPUs for five days cost 864", when, sum)
		}
		nlp := months[1]
		if want := 4*172.8 + 86.4; math.Abs(nlp.Spent-want) > 0.01 || nlp.End == nil || math.Abs(nlp.End.Expected-want*30/5) > 0.1 ||
			!(nlp.End.Low < nlp.End.Expected && nlp.End.Expected < nlp.End.High) {
			t.Errorf("%s: spent %v, at the month's end %+v; want %v, and six times that", when, nlp.Spent, nlp.End, want)
		}
	}
	check("after five days")
	b.restart()
	check("after a restart")
}

// A ledger that has just begun has seen no whole day, whatever day of the month it is.
func TestNothingIsProjectedFromNothing(t *testing.T) {
	b := newBench(t, price.Config{Own: []price.Own{{GPU: "*", PerHour: 3.6, Currency: "USD", Kind: price.Contracted}}})
	b.cfg.Budgets = []cost.Budget{{Team: "nlp", Currency: "USD", PerMonth: 5}}
	b.restart()
	late := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for s := range 3 {
		n := at(late.Add(time.Duration(s)*time.Second), 1)
		n.process(0, "", train, 1, 1)
		b.Observe(n.Snapshot)
		b.write()
		for _, m := range b.Export().Months {
			if m.End != nil {
				t.Fatalf("after %d s of a new ledger %s will have cost %+v at the month's end, want nothing said before the third whole day", s, m.Team, *m.End)
			}
		}
	}
}

func FuzzDecodeWork(f *testing.F) {
	f.Add([]byte(`[{"o":{"kind":"job","id":"slurm/1"},"r":{"work":{"units":[1,2,3,4],"kept_ns":5},"tells":true,"open":7,"step":3}}]`))
	f.Add([]byte(`[{"o":{},"w":{"units":[1,2,3,4],"kept_ns":-5}}]`))
	f.Add([]byte(`[{"r":null}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if runs, err := decodeRuns(data); err == nil {
			for _, r := range runs {
				if r.Run.Open < 0 || r.Run.Work.Negative() {
					t.Errorf("a run of %v is taken up with %+v", r.Owner, r.Run)
				}
			}
		}
		if list, err := decodeWork(data); err == nil {
			for _, e := range list {
				if e.Work.Negative() {
					t.Errorf("work of %v is taken up with %s", e.Owner, fmt.Sprint(e.Work))
				}
			}
		}
	})
}
