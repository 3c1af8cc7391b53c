package main

import (
	"strings"
	"testing"

	"gpuvigil/detect"
	"gpuvigil/internal/config"
	"gpuvigil/internal/server"
	"gpuvigil/rules"
)

var standings = &server.Findings{Node: "gpu-117", Rules: []detect.Standing{
	{Rule: rules.IDXid, Fired: 1},
	{Rule: rules.IDIdleGPU, Fired: 12},
	{Rule: rules.IDVersionChanged, Promoted: true},
	{Rule: rules.IDUnusual, Statistical: true, Fired: 2, Need: 7.6, NeedPage: 9.9, CleanWeeks: 3.2, ProofWeeks: 60000},
}}

// What promote prints is a configuration that does what it says.
func TestPromotePrintsAConfigurationThatPromotes(t *testing.T) {
	for _, id := range []rules.ID{rules.IDIdleGPU, rules.IDUnusual} {
		var out strings.Builder
		if err := printPromotion(&out, standings, rules.Get(id)); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Parse("printed.yml", []byte(out.String()))
		if err != nil {
			t.Fatalf("what is printed for %s is no configuration: %v\n%s", id, err, out.String())
		}
		if !settings(cfg.Rules)[id].Promoted || !promoted(cfg.Rules)[id] || len(cfg.Rules) != 1 {
			t.Errorf("what is printed does not promote %s alone:\n%s", id, out.String())
		}
	}
}

func TestPromoteSaysWhatItWouldDo(t *testing.T) {
	for id, wanted := range map[rules.ID][]string{
		rules.IDXid:            {"1 finding in the last 7 days", "nothing: it pages out of the box"},
		rules.IDIdleGPU:        {"12 findings on gpu-117 in the last 7 days", "rules.idle_gpu.severity is page"},
		rules.IDVersionChanged: {"it is promoted"},
		rules.IDUnusual:        {"2 findings on gpu-117", "no page before 60000 clean GPU-weeks, there are 3.2"},
		rules.IDSaturatedGPU:   {"does not run on this node"},
	} {
		var out strings.Builder
		if err := printPromotion(&out, standings, rules.Get(id)); err != nil {
			t.Fatal(err)
		}
		for _, want := range wanted {
			if !strings.Contains(out.String(), want) {
				t.Errorf("promote %s does not say %q:\n%s", id, want, out.String())
			}
		}
	}
	var out strings.Builder
	if err := printRules(&out, standings); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"idle_gpu", "a fact", "7.6 nats"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the list of rules does not say %q:\n%s", want, out.String())
		}
	}
}

func TestStatusSaysWhatTheBudgetAsks(t *testing.T) {
	a := &answer{findings: standings}
	if got := a.need(); got != "alert budget, rules that tell by statistics: 1; a finding takes 7.6 nats, a page 9.9 nats and 60000 clean GPU-weeks (gpuvigil promote)" {
		t.Errorf("status says %q", got)
	}
	a.findings = &server.Findings{Rules: standings.Rules[:3]}
	if got := a.need(); got != "" {
		t.Errorf("without statistical rules status says %q", got)
	}
}
