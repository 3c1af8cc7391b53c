package report

import (
	"encoding/csv"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestFOCUS reads the export as a program does: the columns that FOCUS 1.2 demands,
// nothing null that must not be, periods within the month, and the invoice's sum.
func TestFOCUS(t *testing.T) {
	a := answer()
	a.Rows[0].Hour = time.Date(2026, 11, 30, 23, 0, 0, 0, time.UTC) // the last hour of a month
	a.Until = a.Rows[0].Hour.Add(time.Hour)
	r, err := New(a, noon, ByTeam)
	if err != nil {
		t.Fatal(err)
	}
	all, err := csv.NewReader(strings.NewReader(written(t, r, FOCUS))).ReadAll()
	if err != nil || len(all) != 13 {
		t.Fatalf("%d lines: %v, want one for each of 7 states, one for the energy of each of 5, and a header", len(all), err)
	}
	at := map[string]int{}
	for i, name := range all[0] {
		at[name] = i
	}
	var billed, energy float64
	for _, mandatory := range strings.Fields(`BilledCost BillingAccountId BillingAccountName BillingCurrency BillingPeriodEnd BillingPeriodStart
		ChargeCategory ChargeClass ChargeDescription ChargePeriodEnd ChargePeriodStart ContractedCost EffectiveCost InvoiceIssuerName ListCost
		PricingQuantity PricingUnit ProviderName PublisherName ServiceCategory ServiceName`) {
		i, has := at[mandatory]
		if !has {
			t.Fatalf("FOCUS 1.2 demands %s", mandatory)
		}
		for _, line := range all[1:] {
			if (line[i] == "") != (mandatory == "ChargeClass") {
				t.Errorf("%s is %q: only the class of a charge that corrects nothing is null", mandatory, line[i])
			}
		}
	}
	for _, line := range all[1:] {
		cell := func(name string) string { return line[at[name]] }
		v, err := strconv.ParseFloat(cell("BilledCost"), 64)
		if err != nil {
			t.Fatal(err)
		}
		billed += v
		switch cell("ServiceName") {
		case "Electricity":
			kWh, err := strconv.ParseFloat(cell("ConsumedQuantity"), 64)
			if err != nil || cell("ConsumedUnit") != "kWh" || v != 0 || cell("x_CarbonGrams") == "" {
				t.Errorf("energy is %s %s at %v, with %s g, %v: want kWh that cost nothing here, as the GPU's price may hold them", cell("ConsumedQuantity"), cell("ConsumedUnit"), v, cell("x_CarbonGrams"), err)
			}
			energy += kWh
		default:
			if cell("ConsumedUnit") != "Hours" || cell("x_CarbonGrams") != "" {
				t.Errorf("time is in %s, with %s g of carbon", cell("ConsumedUnit"), cell("x_CarbonGrams"))
			}
		}
		if cell("BillingPeriodStart") != "2026-11-01T00:00:00Z" || cell("BillingPeriodEnd") != "2026-12-01T00:00:00Z" || cell("ChargePeriodEnd") > cell("BillingPeriodEnd") {
			t.Errorf("a charge from %s to %s is billed for %s to %s", cell("ChargePeriodStart"), cell("ChargePeriodEnd"), cell("BillingPeriodStart"), cell("BillingPeriodEnd"))
		}
		if err := json.Unmarshal([]byte(cell("Tags")), &map[string]string{}); err != nil {
			t.Errorf("tags %q: %v", cell("Tags"), err)
		}
	}
	if total := float64(r.Totals[0].Total.Effective) / 1e9; billed < total-1e-9 || billed > total+1e-9 {
		t.Errorf("FOCUS sums to %v, the report to %v", billed, total)
	}
	if want := float64(r.Totals[0].Total.Energy) / 3.6e12; energy < want-1e-6 || energy > want+1e-6 {
		t.Errorf("FOCUS has %v kWh, the report %v", energy, want)
	}
	for want, ns := range map[string]int64{"1": 3_600_000_000_000, "0.5": 1_800_000_000_000, "0.000277778": 1_000_000_000, "0": 0} {
		if got := gpuHours(ns); got != want {
			t.Errorf("%d ns are %s h, want %s", ns, got, want)
		}
	}
}
