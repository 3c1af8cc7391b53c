package trial

import (
	"fmt"
	"os"
	"testing"
	"time"

	"gpuvigil/internal/synth"
	"gpuvigil/rules"
)

func TestExplore(t *testing.T) {
	if os.Getenv("EXPLORE") == "" {
		t.Skip()
	}
	begin := time.Now()
	steps := 0
	results, err := Options{Seed: 7, GPUs: 2000}.Cases(synth.Cases(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		steps += int((r.Case.Warm + r.Case.Lasts + tail) / time.Minute)
		line := "silent"
		for _, f := range r.Found {
			line = "MISSED"
			if rules.Get(r.Case.Rules[0]) == nil {
				line = "skip"
			}
			if f.Rule != "" {
				line = fmt.Sprintf("%s after %v", f.Rule, f.After)
			}
		}
		fmt.Printf("%-40s %s", r.Case.Name, line)
		for _, x := range r.False {
			m := x.Incident.Members[0]
			fmt.Printf("\n    FALSE %s %s %s @%v: %s", x.Incident.Severity, x.Incident.Rule, x.Incident.Cause, x.First.Sub(start), m.Evidence.Seen)
		}
		fmt.Println()
	}
	fmt.Println(steps, "steps", time.Since(begin))
}

func TestXploreFleet(t *testing.T) {
	if os.Getenv("EXPLORE") == "" {
		t.Skip()
	}
	begin := time.Now()
	f, told, err := Options{Seed: 7, GPUs: 2000}.Fleet(8, 7*24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(f, f.Watched.Hours()/168, time.Since(begin))
	for _, x := range told {
		if x.Incident.Severity > rules.Info {
			fmt.Println("FALSE", x.Incident.Severity, x.Incident.Rule, x.Incident.Cause, x.First, x.Incident.Members[0].Node, x.Incident.Members[0].Owner, x.Incident.Members[0].Evidence.Seen)
		}
	}
}
