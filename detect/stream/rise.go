package stream

import (
	"encoding/json"
	"fmt"
	"math"
)

// RiseLaw is what a Rise looks for. Slack, Least, Limit and Clip are in the unit of the
// values, the others in values: where those are means of a minute, in minutes.
type RiseLaw struct {
	Slack  float64 // a rise of less does not count
	Sigmas float64 // the same in deviations, for a reading that is not steady
	Least  float64 // a mean rise of the last values below which it is over
	Limit  float64 // of the sum of what exceeds the slack: an alarm, if it is ten deviations or more
	Clip   float64 // the most that one value may exceed what is usual
	Young  int     // so many values are taken as usual before anything is said
	Memory int     // what is usual is learned over so many
}

// Rise finds that a reading lies above what is usual for it, and stays there: a CUSUM
// chart (Page 1954) against a slowly learned level. It is a shift that it looks for,
// absolute for the values as they are and relative for their logarithms; a steady
// growth is [Leak]'s. What comes of one value is bounded, and what is suspicious is
// learned at a quarter of the speed.
//
// The zero Rise has seen nothing. Memory and time for a value are constant.
type Rise struct {
	n       uint32
	usual   float64
	unrest  float64 // mean absolute deviation
	recent  float64 // mean deviation of the last few values
	sum     CUSUM
	score   float64
	lasting uint32 // values since the sum left 0
}

const (
	riseStart = 10   // values that make the first idea of what is usual
	riseHold  = 0.25 // of the speed of learning while a rise is suspected
	// Part of the limit that makes a suspicion: were it less, what is usual would be
	// learned of the low values more than of the high ones.
	riseSuspect = 0.25
	riseLimit   = 10  // deviations: three nats with a slack of 1.5 and neighbours that resemble each other
	riseRecent  = 0.2 // weight of the newest value in the recent mean
	riseWild    = 3   // deviations, beyond which a value teaches no more
	// Minutes resemble their neighbours. With a correlation of a half from one to the next
	// a mean varies as if there were a third as many (1+φ)/(1−φ).
	riseAlike = 1.7320508075688772
	riseWeek  = 7 * 24 * 60
	riseMost  = 50 // nats: more is no better known
)

// Add takes a value and returns the score: 1 is the threshold. What is not a number, or
// beyond all numbers that are measured, changes nothing.
func (r *Rise) Add(law *RiseLaw, x float64) (score float64) {
	if !(math.Abs(x) <= 1e100) {
		return r.score
	}
	if r.n == 0 {
		r.usual = x
	}
	r.n = min(r.n+1, math.MaxUint32-1)
	d := min(x-r.usual, law.Clip)
	slack := r.slack(law)
	r.recent += float64(riseRecent * (d - r.recent))
	if int(r.n) > law.Young {
		whole := r.sum.Add(d, slack, r.limit(law))
		r.score = max(min(whole, r.recent/max(law.Least, slack)), 0)
	}
	if r.sum.sum > 0 {
		r.lasting = min(r.lasting+1, math.MaxUint32-1)
	} else {
		r.lasting = 0
	}
	r.learn(law, d)
	return r.score
}

func (r *Rise) slack(law *RiseLaw) float64 { return max(law.Slack, float64(law.Sigmas*r.sigma())) }

// limit grows with the unrest, so that an alarm of an unsteady reading is worth about as
// much as one of a steady reading.
func (r *Rise) limit(law *RiseLaw) float64 { return max(law.Limit, float64(riseLimit*r.sigma())) }

// sigma is the standard deviation of a normal distribution with the unrest.
func (r *Rise) sigma() float64 { return 1.2533141373155003 * r.unrest }

func (r *Rise) learn(law *RiseLaw, d float64) {
	rate := 1 / float64(min(int(r.n), law.Memory))
	if r.sum.sum > float64(riseSuspect*r.limit(law)) {
		rate *= riseHold
	}
	if most := max(law.Slack, float64(riseWild*r.sigma())); r.n > riseStart {
		d = max(-most, min(d, most))
	}
	r.unrest += float64(rate * (math.Abs(d) - r.unrest))
	r.usual += float64(rate * d)
}

// Known tells whether enough has been seen to say what is usual.
func (r *Rise) Known(law *RiseLaw) bool { return int(r.n) >= law.Young }

// Usual returns the level that is usual, which means nothing before it is known.
func (r *Rise) Usual() float64 { return r.usual }

// Recent returns by how much the last few values lie above it.
func (r *Rise) Recent() float64 { return r.recent }

// Lasting returns for how many values the rise has lasted, 0 for none.
func (r *Rise) Lasting() int { return int(r.lasting) }

// Score returns what the newest value came to.
func (r *Rise) Score() float64 { return r.score }

// Surprise returns how unlikely so large a sum is, if every value is of one minute, in nats: -ln of how
// often a week brings one where there is no rise, at least 0. It is computed: the mean
// time between false alarms of a chart with slack k and limit h, in deviations, is
// (exp(2k(h+1.166)) − 2k(h+1.166) − 1) / 2k² (Siegmund 1985, Sequential Analysis, sec.
// 2.6), with the deviation that values have whose neighbours resemble each other.
func (r *Rise) Surprise(law *RiseLaw) float64 {
	sigma := riseAlike * r.sigma()
	if r.sum.sum <= 0 {
		return 0
	}
	k, h := r.slack(law)/sigma, r.sum.sum/sigma+1.166
	if b := float64(2 * k * h); b < riseMost+20 {
		between := (exp(b) - b - 1) / float64(2*k*k)
		return max(0, min(ln(max(between, 1)/riseWeek), riseMost))
	}
	return riseMost
}

// Restart says that what is measured begins anew, and is expected to be as before.
func (r *Rise) Restart() { r.recent, r.sum, r.score, r.lasting = 0, CUSUM{}, 0, 0 }

type riseState struct {
	N       uint32  `json:"n"`
	Usual   float64 `json:"usual"`
	Unrest  float64 `json:"unrest"`
	Recent  float64 `json:"recent,omitempty"`
	Sum     float64 `json:"sum,omitempty"`
	Score   float64 `json:"score,omitempty"`
	Lasting uint32  `json:"lasting,omitempty"`
}

// MarshalJSON writes all that is remembered, in less than 200 bytes.
func (r *Rise) MarshalJSON() ([]byte, error) {
	return json.Marshal(riseState{r.n, r.usual, r.unrest, r.recent, r.sum.sum, r.score, r.lasting})
}

// UnmarshalJSON takes up what MarshalJSON wrote.
func (r *Rise) UnmarshalJSON(data []byte) error {
	var s riseState
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	for _, x := range [...]float64{s.Usual, s.Unrest, s.Recent, s.Sum, s.Score} {
		if math.Abs(x) > 1e101 {
			return fmt.Errorf("%w: it has values that cannot be", errRecord)
		}
	}
	*r = Rise{s.N, s.Usual, max(s.Unrest, 0), s.Recent, CUSUM{max(s.Sum, 0)}, max(s.Score, 0), s.Lasting}
	return nil
}
