package detect

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect/stream"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// What is looked at of a model's use. Where the server does not count requests, the
// tokens that it generates for each of a prompt are all there is.
const (
	usePrompt = iota // tokens of a prompt
	useAnswer        // tokens of an answer
	useErrors        // share of requests that end with an error
	useVolume        // requests, for each that is usual at this hour
	useRatio         // tokens generated for each token of prompts
	useReadings
)

const (
	useBlock     = 5 * time.Minute // over which use is summed up
	useLongest   = 30 * time.Minute
	useRequests  = 20                 // that a block must have, or it grows
	useHistory   = 3 * 24 * time.Hour // before which nothing is judged: each hour of the day three times
	useAlone     = 30 * time.Minute   // so long a single reading is unusual before it is a finding
	useEnds      = 0.005              // of the time before, at each end, is left out of what has been seen
	useBeyond    = 1.5                // times the rest a reading must be to become unusual
	useStays     = 1.2                // and to stay so
	useTries     = 7 * 24 * 2         // stretches of that length in a week
	useSurprise  = 3.0                // nats: one false finding of a healthy model in twenty weeks
	useMost      = 5                  // ends of the usual that count for surprise
	hourLearns   = 0.03               // of a block: an hour of the day is known by its last three
	usesKept     = 7 * 24 * time.Hour // of a model that has not been seen since
	leastErrors  = 5
	errorShare   = 0.05
	errorNats    = 12.0 // of the binomial tail
	maxServed    = 256
	volumeFactor = 3.0
)

// useFactor is how many times the usual a reading must be, or with the sides that count
// both ways a part of it.
var useFactor = [useReadings]float64{2, 2, 3, volumeFactor, 2}

// UnusualUse watches what models are asked: the size of prompts and answers, errors, and
// requests, each against what is usual of the model. One reading that is unusual for a
// moment proves nothing: it takes two, or one that stays so.
type UnusualUse struct {
	endpoints map[collector.EndpointKey]*endpointUse
	now       time.Time
}

// endpointUse is what is kept of one endpoint.
type endpointUse struct {
	subject Subject
	model   string
	at      time.Time
	counts  [4]rate // of requests, errors, tokens of prompts and of answers
	block   useSum
	kept    useMemory
	rate    float64 // requests in a second of the last block
	read    [useReadings]useReading
	told    Evidence
	toldAt  time.Time
}

// useSum is what happened in a block. What is not counted is NaN.
type useSum struct {
	begin                             time.Time
	requests, errors, prompt, answers float64
}

// useReading is one reading and what is usual of it. While it is unusual, what is usual
// stands still.
type useReading struct {
	usual         *stream.Histogram
	x             float64   // of the last block
	typical, edge float64   // of the usual: its middle, and its end on the side of the reading
	since         time.Time // since when it is unusual; zero: it is not
	factor        float64   // how many times the typical it was when that began, or a part of it
	nats          float64   // how unlikely that is
}

// useMemory is how many requests and errors there were, as far as they are not forgotten,
// and how many requests in a second are usual at each hour of the day; 0: not known.
type useMemory struct {
	First    time.Time   `json:"first"`
	Requests float64     `json:"requests"`
	Errors   float64     `json:"errors"`
	Hours    [24]float64 `json:"hours"`
}

// NewUnusualUse returns the detector of rule unusual_model_use.
func NewUnusualUse() *UnusualUse {
	return &UnusualUse{endpoints: map[collector.EndpointKey]*endpointUse{}}
}

// Rule returns unusual_model_use.
func (d *UnusualUse) Rule() *rules.Rule { return rules.Get(rules.IDUnusualModelUse) }

// Observe judges every model whose server counts tokens or requests.
func (d *UnusualUse) Observe(s *collector.Snapshot, report func(Observation)) {
	d.now = s.Time
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		at := e.SampledAt(metric.Fast)
		if at.IsZero() || s.Time.Sub(at) > sampleGap {
			continue
		}
		u := d.get(e)
		if u == nil {
			continue
		}
		if !at.Equal(u.at) {
			u.at = at
			u.count(e, at)
			if u.block.whole(at) {
				u.close(at)
			}
		}
		d.judge(s, e, u, report)
	}
}

func (d *UnusualUse) get(e *collector.Endpoint) *endpointUse {
	if u := d.endpoints[e.Key()]; u != nil {
		return u
	}
	if !room(d.endpoints, maxServed, usesKept, func(u *endpointUse) time.Time { return u.at }, d.now) {
		return nil
	}
	u := newUse(e.Key())
	u.kept.First = d.now
	d.endpoints[e.Key()] = u
	return u
}

func newUse(key collector.EndpointKey) *endpointUse {
	u := &endpointUse{subject: Subject{"endpoint", key.String()}, model: key.Model}
	for i := range u.read {
		u.read[i] = useReading{usual: stream.NewHistogram(queueHalfLife), x: math.NaN()}
	}
	return u
}

// count adds what happened since the reading before. A counter that began anew, or a
// time in which nobody looked, begins another block.
func (u *endpointUse) count(e *collector.Endpoint, at time.Time) {
	ended, failed := math.NaN(), math.NaN()
	for i, outcome := range metric.Outcomes.Values {
		if v := e.ValueAt(metric.Requests, i); !math.IsNaN(v) && outcome != "rejected" {
			ended = finite(ended) + v
			if outcome == "error" {
				failed = v
			}
		}
	}
	var grown [4]float64
	fresh := true
	for i, v := range [4]float64{ended, failed, e.Value(metric.PromptTokens), e.Value(metric.GeneratedTokens)} {
		before := u.counts[i].At
		grown[i] = u.counts[i].next(at, v) * at.Sub(before).Seconds()
		if math.IsNaN(grown[i]) && !math.IsNaN(v) {
			fresh = false
		}
	}
	if !fresh || u.block.begin.IsZero() {
		u.block = useSum{begin: at}
		return
	}
	b := &u.block
	b.requests += grown[0]
	b.errors += grown[1]
	b.prompt += grown[2]
	b.answers += grown[3]
}

// whole reports whether the block says enough.
func (b *useSum) whole(at time.Time) bool {
	lasts := at.Sub(b.begin)
	return !b.begin.IsZero() && lasts >= useBlock && (!(b.requests < useRequests) || lasts >= useLongest)
}

// close judges a block and lets it count. One in which nearly nothing was asked says
// nothing: a model that nobody uses is idle and not misused.
func (u *endpointUse) close(at time.Time) {
	b := u.block
	u.block = useSum{begin: at}
	hour := &u.kept.Hours[at.UTC().Hour()]
	for i := range u.read {
		u.read[i].x = math.NaN()
	}
	switch {
	case math.IsNaN(b.requests):
		if b.prompt > 0 {
			u.read[useRatio].x = b.answers / b.prompt
		}
	case b.requests >= useRequests:
		u.rate = b.requests / at.Sub(b.begin).Seconds()
		if *hour == 0 {
			*hour = u.rate
		}
		u.read[usePrompt].x, u.read[useAnswer].x = b.prompt/b.requests, b.answers/b.requests
		u.read[useErrors].x, u.read[useVolume].x = b.errors/b.requests, u.rate / *hour
	}
	mature := at.Sub(u.kept.First) >= useHistory
	for i := range u.read {
		r := &u.read[i]
		if math.IsNaN(r.x) {
			r.since = time.Time{}
			continue
		}
		r.judge(i, b.begin, at, mature && (i != useErrors || u.errorTail(b) >= errorNats))
		learned := at.Sub(b.begin).Seconds()
		if !r.since.IsZero() {
			learned *= slowLearning
		}
		r.usual.Add(at, r.x, learned)
	}
	u.kept.learn(b, u.read[useErrors].since.IsZero())
	if !math.IsNaN(u.read[useVolume].x) && u.read[useVolume].since.IsZero() {
		*hour += hourLearns * (u.rate - *hour)
	}
}

// errorTail is how unlikely so many errors are by the share of them before, in nats.
func (u *endpointUse) errorTail(b useSum) float64 {
	if !(b.errors >= leastErrors) || b.errors < errorShare*b.requests || b.requests > math.MaxInt32 {
		return 0
	}
	usual := max((u.kept.Errors+0.5)/(u.kept.Requests+1), 0.001)
	return min(stream.BinomialSurprise(int(b.errors), int(b.requests), usual), 1e6)
}

func (m *useMemory) learn(b useSum, usual bool) {
	if math.IsNaN(b.requests) || math.IsNaN(b.errors) || !usual {
		return
	}
	m.Requests += b.requests
	m.Errors += b.errors
	if m.Requests > 1e6 { // so that it forgets
		m.Requests /= 2
		m.Errors /= 2
	}
}

// judge says whether a reading is unusual now. That begins well beyond what has been
// seen, and lasts until the reading comes near that again; a day at most: then it is the
// new usual.
func (r *useReading) judge(which int, begin, at time.Time, may bool) {
	if !r.since.IsZero() {
		if at.Sub(r.since) < newHabit && r.apart(which, r.edge) >= useStays {
			return
		}
		r.since = time.Time{}
	}
	least := 0.0
	if which == useErrors {
		least = 0.001
	}
	r.typical, r.edge = max(r.usual.Typical(0.5), least), max(r.usual.Quantile(1-useEnds), least)
	if r.x < r.typical {
		r.edge = r.usual.Typical(useEnds)
	}
	r.factor = r.apart(which, r.typical)
	if may && r.factor >= useFactor[which] && r.apart(which, r.edge) >= useBeyond {
		r.since, r.nats = begin, r.unlikely()
	}
}

// unlikely is how improbable the reading is, in nats, if its logarithm falls off no slower
// beyond the end of what is usual than it does up to there.
func (r *useReading) unlikely() float64 {
	usual := math.Log(max(r.edge/r.typical, r.typical/r.edge, 1.19)) // a bin of the histogram
	return -math.Log(useEnds) * min(math.Log(r.factor)/usual, useMost)
}

// apart is how many times as much as that the reading is, or that as the reading; for
// errors and requests only more counts.
func (r *useReading) apart(which int, than float64) float64 {
	switch {
	case !(than > 0):
		return 0
	case r.x >= r.typical:
		return min(r.x/than, 1e6)
	case which == useErrors || which == useVolume || !(r.x > 0):
		return 0
	}
	return min(than/r.x, 1e6)
}

// judge reports the endpoint. Its surprise holds the readings to be independent of each
// other, and each half hour of a week.
func (d *UnusualUse) judge(s *collector.Snapshot, e *collector.Endpoint, u *endpointUse, report func(Observation)) {
	o := Observation{Subject: u.subject, Cause: "unlike_habit", Severity: rules.Ticket}
	unusual, nats, largest := 0, 0.0, 0.0
	for i := range u.read {
		r := &u.read[i]
		if r.since.IsZero() {
			continue
		}
		unusual++
		nats += r.nats
		largest = max(largest, r.factor)
		if o.At.IsZero() || r.since.Before(o.At) {
			o.At = r.since
		}
	}
	if unusual > 0 {
		o.Score = min(d.now.Sub(o.At).Seconds()/useAlone.Seconds(), 10)
		if unusual >= 2 {
			o.Score = max(1, o.Score)
		}
		o.Surprise = max(nats-math.Log(useTries*useReadings), 0.1)
		o.Score = min(o.Score, o.Surprise/useSurprise)
	}
	if o.Score >= 1 {
		if age := d.now.Sub(u.toldAt); u.toldAt.IsZero() || age >= evidenceEvery || age < 0 {
			u.told, u.toldAt = u.say(d.now, largest), d.now
		}
		o.Evidence = u.told
		o.Owner, _ = s.OwnerOf(e) // unattributed if it is not known
	}
	report(o)
}

type unusualState struct {
	Version int        `json:"version"`
	Uses    []useState `json:"uses"`
}

type useState struct {
	collector.EndpointKey
	Seen time.Time `json:"seen"`
	useMemory
	Usual   []*stream.Histogram `json:"usual"`
	Since   []time.Time         `json:"since"`
	Typical []float64           `json:"typical"`
	Edge    []float64           `json:"edge"`
	Factor  []float64           `json:"factor"`
	Nats    []float64           `json:"nats"`
}

// Save returns what is usual of each model's use, and what is unusual now. The block that
// is being counted is not in it.
func (d *UnusualUse) Save() ([]byte, error) {
	s := unusualState{Version: 1, Uses: []useState{}}
	for key, u := range d.endpoints {
		state := useState{EndpointKey: key, Seen: u.at, useMemory: u.kept}
		for i := range u.read {
			r := &u.read[i]
			state.Usual, state.Since = append(state.Usual, r.usual), append(state.Since, r.since)
			state.Typical, state.Factor, state.Nats = append(state.Typical, finite(r.typical)), append(state.Factor, r.factor), append(state.Nats, r.nats)
			state.Edge = append(state.Edge, finite(r.edge))
		}
		s.Uses = append(s.Uses, state)
	}
	slices.SortFunc(s.Uses, func(a, b useState) int { return strings.Compare(a.String(), b.String()) })
	return json.Marshal(s)
}

// Restore takes up what Save returned. A model whose memory has another form begins anew.
func (d *UnusualUse) Restore(data []byte) error {
	var s unusualState
	if err := decodeState(data, &s, 1); err != nil {
		return err
	}
	for _, saved := range s.Uses {
		n := len(saved.Usual)
		if n != useReadings || len(saved.Since) != n || len(saved.Typical) != n || len(saved.Edge) != n || len(saved.Factor) != n || len(saved.Nats) != n || slices.Contains(saved.Usual, nil) || len(d.endpoints) >= maxServed {
			continue
		}
		u := newUse(saved.EndpointKey)
		u.at, u.kept = saved.Seen, saved.useMemory
		for i := range u.read {
			u.read[i] = useReading{saved.Usual[i], math.NaN(), saved.Typical[i], saved.Edge[i], saved.Since[i], saved.Factor[i], saved.Nats[i]}
		}
		d.endpoints[saved.EndpointKey] = u
	}
	return nil
}

// Shift moves all that is remembered of models.
func (d *UnusualUse) Shift(by time.Duration) {
	shift(by, &d.now)
	for _, u := range d.endpoints {
		shift(by, &u.at, &u.toldAt, &u.block.begin, &u.kept.First)
		for i := range u.counts {
			u.counts[i].shift(by)
		}
		for i := range u.read {
			shift(by, &u.read[i].since)
			u.read[i].usual.Shift(by)
		}
	}
}
