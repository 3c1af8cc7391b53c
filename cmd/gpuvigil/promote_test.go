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
	{Rule: rules.IDXid, Severity: rules.Page, Pages: true, Fired: 1},
	{Rule: rules.IDIdleGPU, Severity: rules.Ticket, Fired: 12},
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
		rules.IDUnusual:        {"2 findings on gpu-117", "no page by statistics before 60000 clean GPU-weeks, there are 3.2"},
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

// The list is of the rules as they are configured, as the engine takes them.
func TestPromoteShowsTheConfiguration(t *testing.T) {
	cfg, err := config.Parse("test.yml", []byte("rules:\n  xid:\n    severity: ticket\n  saturated_gpu:\n    severity: info\n  pcie_link:\n    severity: page\n    promoted: true\n"))
	if err != nil {
		t.Fatal(err)
	}
	e := detect.NewEngine(detect.Config{Settings: settings(cfg.Rules)}, detect.Detectors(detect.DetectorConfig{}))
	var out strings.Builder
	if err := printRules(&out, &server.Findings{Rules: e.View().Standings}); err != nil {
		t.Fatal(err)
	}
	for rule, wanted := range map[string][]string{
		"xid":           {"ticket", "rules.xid.severity keeps it from it"},
		"saturated_gpu": {"info", "may page where rules.saturated_gpu.severity is page"},
		"pcie_link":     {"page", "it is promoted; no page by statistics before", "clean GPU-weeks, there are 0.0"},
		"gpu_lost":      {"page", "it pages out of the box"},
	} {
		for line := range strings.Lines(out.String()) {
			if fields := strings.Fields(line); fields[0] != rule {
				continue
			} else if fields[1] != wanted[0] {
				t.Errorf("%s is said to be at most %s, and is configured as %s", rule, fields[1], wanted[0])
			}
			for _, want := range wanted[1:] {
				if !strings.Contains(line, want) {
					t.Errorf("of %s it does not say %q: %s", rule, want, line)
				}
			}
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
