package detect

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
)

// ledger adds up, for each holder of GPUs, the GPU time left idle in the last 24
// hours, by the hour, and what it cost.
type ledger struct {
	accounts map[collector.Owner]*account
	currency string // of what it cost
}

type account struct {
	Hour    int64          `json:"hour"`    // the newest, since the epoch
	Seconds [slots]float64 `json:"seconds"` // of hour n at n modulo slots
	Cost    [slots]float64 `json:"cost"`    // likewise, as far as prices were known
}

// slots are the hours that 24 hours can touch.
const slots = 25

// maxHolders bounds the ledger; a node has far fewer holders in a day. What is
// beyond is not added up, so it stays information.
const maxHolders = 1024

func newLedger() *ledger { return &ledger{accounts: map[collector.Owner]*account{}} }

// add books the time between two instants to a holder, each hour of it to its own. The
// price of an hour is NaN where it is not known.
func (l *ledger) add(who collector.Owner, from, to time.Time, perHour float64) {
	a := l.accounts[who]
	if a == nil {
		if len(l.accounts) >= maxHolders {
			l.prune(to)
		}
		if len(l.accounts) >= maxHolders {
			return
		}
		a = &account{Hour: hour(to)}
		l.accounts[who] = a
	}
	a.slideTo(hour(to))
	for h := max(hour(from), a.Hour-slots+1); h <= a.Hour; h++ {
		begin, end := time.Unix(h*3600, 0), time.Unix((h+1)*3600, 0)
		if end.After(to) {
			end = to
		}
		if idle := end.Sub(later(begin, from)); idle > 0 {
			a.Seconds[h%slots] += idle.Seconds()
			if !math.IsNaN(perHour) {
				a.Cost[h%slots] += float64(perHour * idle.Hours())
			}
		}
	}
}

// idle returns the GPU-hours that a holder left idle in the 24 hours before now, and what
// they cost.
func (l *ledger) idle(who collector.Owner, now time.Time) (hours, cost float64) {
	a := l.accounts[who]
	if a == nil {
		return 0, 0
	}
	a.slideTo(hour(now))
	return a.over(&a.Seconds, now) / 3600, a.over(&a.Cost, now)
}

// over adds up 24 hours: of the oldest hour only the end is within them.
func (a *account) over(by *[slots]float64, now time.Time) float64 {
	sum := 0.0
	for _, v := range by {
		sum += v
	}
	gone := float64(now.Unix()%3600) / 3600
	return sum - float64(by[(a.Hour+1)%slots]*gone)
}

// in says what currency costs are in from now on: two do not add up.
func (l *ledger) in(currency string) {
	if currency == l.currency {
		return
	}
	for _, a := range l.accounts {
		if l.currency != "" {
			a.Cost = [slots]float64{}
		}
	}
	l.currency = currency
}

func (l *ledger) prune(now time.Time) {
	for who, a := range l.accounts {
		if hour(now)-a.Hour >= slots {
			delete(l.accounts, who)
		}
	}
}

func (a *account) slideTo(h int64) {
	if h-a.Hour >= slots || h < a.Hour-slots {
		a.Seconds, a.Cost, a.Hour = [slots]float64{}, [slots]float64{}, h
	}
	for ; a.Hour < h; a.Hour++ {
		a.Seconds[(a.Hour+1)%slots], a.Cost[(a.Hour+1)%slots] = 0, 0
	}
}

func hour(t time.Time) int64 { return max(t.Unix()/3600, 0) }

type accountOf struct {
	Owner collector.Owner `json:"owner"`
	account
}

// MarshalJSON writes the accounts in the order of their owners.
func (l *ledger) MarshalJSON() ([]byte, error) {
	list := []accountOf{}
	for who, a := range l.accounts {
		list = append(list, accountOf{who, *a})
	}
	slices.SortFunc(list, func(a, b accountOf) int {
		return strings.Compare(a.Owner.String()+a.Owner.Team, b.Owner.String()+b.Owner.Team)
	})
	return json.Marshal(list)
}

// UnmarshalJSON takes up what MarshalJSON wrote.
func (l *ledger) UnmarshalJSON(data []byte) error {
	var list []accountOf
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	l.accounts = map[collector.Owner]*account{}
	for _, a := range list {
		if a.Hour >= 0 {
			l.accounts[a.Owner] = &a.account
		}
	}
	return nil
}
