package config

import (
	"strings"
	"testing"
	"time"
)

func TestMoneyIsRead(t *testing.T) {
	c, err := Parse("c.yml", []byte(`
prices:
  provider: AWS
  node_labels: {pool: train}
  own:
  - {gpu: "NVIDIA H100*", per_gpu_hour: 2.1, currency: EUR, from: 2026-01-01, to: 2026-12-31, labels: {pool: train}}
  - {gpu: "*", per_gpu_hour: 0, currency: EUR, kind: effective}
energy: {price_per_kwh: 0.2, currency: EUR, pue: 1.3, carbon_g_per_kwh_by_hour: [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24], time_zone: Europe/Berlin}
budgets: [{team: nlp, per_month: 40000, currency: EUR}]
`))
	if err != nil {
		t.Fatal(err)
	}
	own := c.Prices.Own
	if len(own) != 2 || *own[0].PerGPUHour != 2.1 || own[0].Kind != "contracted" || own[1].Kind != "effective" || *own[1].PerGPUHour != 0 ||
		!own[0].To.Time().Equal(time.Date(2026, 12, 31, 0, 0, 0, 0, time.UTC)) || !own[1].From.Time().IsZero() {
		t.Errorf("prices are read as %+v", own)
	}
	if len(c.Energy.Prices()) != 1 || len(c.Energy.Carbons()) != 24 || c.Energy.Carbons()[23] != 24 {
		t.Errorf("energy is read as %+v", c.Energy)
	}
}

func TestMistakesAboutMoneyAreNamed(t *testing.T) {
	for text, want := range map[string][]string{
		"prices: {own: [{per_gpu_hour: 1, currency: EUR}]}":                                             {"prices.own[0].gpu", "H100"},
		"prices: {own: [{gpu: '[', per_gpu_hour: 1, currency: EUR}]}":                                   {"prices.own[0].gpu", `"["`},
		"prices: {own: [{gpu: '*', currency: EUR}]}":                                                    {"prices.own[0].per_gpu_hour", "is missing"},
		"prices: {own: [{gpu: '*', per_gpu_hour: -1, currency: EUR}]}":                                  {"prices.own[0].per_gpu_hour", "-1"},
		"prices: {own: [{gpu: '*', per_gpu_hour: dear, currency: EUR}]}":                                {"c.yml:1: prices.own[0].per_gpu_hour", "dear", "a number"},
		"prices: {own: [{gpu: '*', per_gpu_hour: 1, currency: euro}]}":                                  {"prices.own[0].currency", "euro", "ISO 4217"},
		"prices: {own: [{gpu: '*', per_gpu_hour: 1, currency: EUR, kind: spot}]}":                       {"prices.own[0].kind", "spot", "list, contracted, effective"},
		"prices:\n  own:\n  - {gpu: '*', per_gpu_hour: 1, currency: EUR, from: 31.1.2026}":              {"c.yml:3: prices.own[0].from", "31.1.2026", "2026-01-31"},
		"prices: {own: [{gpu: '*', per_gpu_hour: 1, currency: EUR, from: 2026-02-01, to: 2026-01-01}]}": {"prices.own[0].to", "2026-01-01", "2026-02-01"},
		"prices: {own: [{gpu: '*', per_gpu_hour: 0.0000000001, currency: EUR}]}":                        {"c.yml:1: prices.own[0].per_gpu_hour", "0.000000001 to 1000000"},
		"prices: {provider: none, region: us-east-1}":                                                   {"c.yml:1: prices.region", "us-east-1", "none"},
		"energy: {price_per_kwh: 1.0e-10, currency: EUR}":                                               {"c.yml:1: energy.price_per_kwh", "0.000000001 to 1000000"},
		"energy: {carbon_g_per_kwh: 1.0e-10}":                                                           {"c.yml:1: energy.carbon_g_per_kwh", "0.000000001 to 5000"},
		"budgets: [{team: a, per_month: 0.0000000001, currency: EUR}]":                                  {"c.yml:1: budgets[0].per_month", "0.000000001 to 1000000"},
		"energy: {price_per_kwh: 0.2}":                                                                  {"energy.currency", "ISO 4217"},
		"energy: {price_per_kwh_by_hour: [1, 2], currency: EUR}":                                        {"energy.price_per_kwh_by_hour", "2 values", "24"},
		"energy: {carbon_g_per_kwh: 1, carbon_g_per_kwh_by_hour: [1]}":                                  {"energy.carbon_g_per_kwh", "one of them"},
		"energy: {carbon_g_per_kwh: -1}":                                                                {"energy.carbon_g_per_kwh", "-1", "5000"},
		"energy: {pue: 0.5}":                                                                            {"energy.pue", "0.5", "1 to 5"},
		"energy: {time_zone: Mars/Olympus}":                                                             {"energy.time_zone", "Mars/Olympus"},
		"ledger: {retention: 1h}":                                                                       {"ledger.retention", "1h", "1d to 400d"},
		"budgets: [{per_month: 1, currency: EUR}]":                                                      {"budgets[0].team"},
		"budgets: [{team: a, per_month: 1, currency: EUR}, {team: a, currency: EUR}]":                   {"budgets[1].team", "a second time", "budgets[1].per_month"},
	} {
		_, err := Parse("c.yml", []byte(text))
		if err == nil {
			t.Errorf("%s is accepted", text)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: the error does not say %q: %v", text, w, err)
			}
		}
	}
}
