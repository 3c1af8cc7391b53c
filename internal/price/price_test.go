package price

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func book(t *testing.T, cfg Config) *Book {
	t.Helper()
	b, err := NewBook(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestNoProductHasThePriceOfAnother takes all pairs: A10 is inside of A100, L4
// inside of L40S, and RTX 6000 is four cards.
func TestNoProductHasThePriceOfAnother(t *testing.T) {
	all := book(t, Config{}).builtIn
	for _, a := range slices.Sorted(maps.Keys(all.products)) {
		for _, b := range slices.Sorted(maps.Keys(all.products)) {
			if same := all.products[a] == all.products[b]; same != (a == b) {
				t.Errorf("%q and %q are one product", a, b)
			}
		}
		var want *Rate
		for i := range all.prices {
			if l := &all.prices[i]; l.product == all.products[a] && (want == nil || l.Nano < want.Nano) {
				want = &l.Rate
			}
		}
		one := &builtIn{products: all.products, prices: nil}
		for _, l := range all.prices {
			if l.product != all.products[a] {
				one.prices = append(one.prices, l)
			}
		}
		b := &Book{builtIn: one}
		if r := b.Rates(a, noon); r != (Rates{}) {
			t.Errorf("%q gets the price of another product: %+v", a, r[List])
		}
		b.builtIn = all
		r := b.Rates(a, noon)
		if (r[List] == nil) != (want == nil) || want != nil && (*r[List] != *want || r[Effective] != r[List]) {
			t.Errorf("%q costs %+v, want %+v", a, r[List], want)
		}
		for _, other := range []string{a + " ", a + "0", a[:len(a)-1], strings.ToLower(a), a + "-40C", "GRID " + a} {
			if _, real := all.products[other]; !real && b.Rates(other, noon) != (Rates{}) {
				t.Errorf("%q is not known and has a price", other)
			}
		}
	}
}

func TestEveryBuiltInPriceIsOfAProduct(t *testing.T) {
	b := book(t, Config{}).builtIn
	for _, l := range b.prices {
		found := false
		for _, p := range b.products {
			found = found || p == l.product
		}
		if !found {
			t.Errorf("%+v: no GPU has this price, because NVML's name for it is not known", l)
		}
	}
}

func TestTheListSaysWhereAPriceIsFrom(t *testing.T) {
	const h100 = "NVIDIA H100 80GB HBM3"
	for _, c := range []struct {
		cfg      Config
		model    string
		usd      float64
		provider string
	}{
		{Config{}, h100, 3.85, "Nebius"},
		{Config{Provider: "aws"}, h100, 6.88, "AWS"},
		{Config{Provider: "Azure", Region: "eastus"}, h100, 12.29, "Azure"},
		{Config{Provider: "AWS"}, "NVIDIA A100-SXM4-40GB", 2.74470525, "AWS"},
		{Config{}, "NVIDIA A10", 1.29, "Lambda"},
		{Config{}, "NVIDIA A10G", 1.006, "AWS"},
		{Config{}, "NVIDIA L4", 0.8048, "AWS"},
		{Config{}, "NVIDIA H100 NVL", 3.19, "RunPod"},
		{Config{}, "NVIDIA H100 PCIe", 2.89, "RunPod"},
		{Config{}, "Quadro RTX 6000", 0.69, "Lambda"},
	} {
		r := book(t, c.cfg).Rates(c.model, noon)[Effective]
		if r == nil || r.Nano != nano(c.usd) || r.Provider != c.provider || r.Source == "" || r.AsOf == "" || r.Currency != "USD" {
			t.Errorf("%s by %+v costs %+v, want %v USD of %s with source and date", c.model, c.cfg, r, c.usd, c.provider)
		}
	}
	for model, cfg := range map[string]Config{"NVIDIA H100 NVL": {Provider: "Lambda"}, "NVIDIA RTX 6000 Ada Generation": {}, "Radeon": {}, h100: {Provider: NoProvider}} {
		if r := book(t, cfg).Rates(model, noon); r != (Rates{}) {
			t.Errorf("%s by %+v has a guessed price: %+v", model, cfg, r[Effective])
		}
	}
}

func TestOwnPrices(t *testing.T) {
	day := func(s string) time.Time {
		at, err := time.Parse(time.DateOnly, s)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	cfg := Config{Node: "gpu-7", Labels: map[string]string{"pool": "train"}, Own: []Own{
		{GPU: "NVIDIA H100*", Node: "cpu-*", PerHour: 99, Currency: "USD", Kind: Effective},
		{GPU: "NVIDIA H100*", Labels: map[string]string{"pool": "serve"}, PerHour: 98, Currency: "USD", Kind: Effective},
		{GPU: "NVIDIA H100*", Node: "gpu-*", Labels: map[string]string{"pool": "train"}, PerHour: 2.5, Currency: "USD", Kind: Contracted, To: day("2026-11-30")},
		{GPU: "*", PerHour: 2.25, Currency: "USD", Kind: Contracted, From: day("2026-12-01"), Source: "contract 4711"},
		{GPU: "NVIDIA H100 PCIe", PerHour: 0, Currency: "USD", Kind: Effective},
	}}
	b := book(t, cfg)
	for _, c := range []struct {
		model            string
		at               string
		effective        float64
		kind             Kind
		contracted, list float64 // -1: none
	}{
		{"NVIDIA H100 80GB HBM3", "2026-11-30T23:59:59Z", 2.5, Contracted, 2.5, 3.85},
		{"NVIDIA H100 80GB HBM3", "2026-12-01T00:00:00Z", 2.25, Contracted, 2.25, 3.85},
		{"NVIDIA H100 PCIe", "2026-11-30T12:00:00Z", 0, Effective, 2.5, 2.89},
		{"NVIDIA A10", "2026-11-30T12:00:00Z", 1.29, List, -1, 1.29},
		{"Some GPU", "2026-12-30T12:00:00Z", 2.25, Contracted, 2.25, -1},
	} {
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}
		r := b.Rates(c.model, at)
		if r[Effective] == nil || r[Effective].Nano != nano(c.effective) || r[Effective].Kind != c.kind {
			t.Errorf("%s at %s costs %+v, want %v by the %s price", c.model, c.at, r[Effective], c.effective, c.kind)
		}
		for k, want := range map[Kind]float64{Contracted: c.contracted, List: c.list} {
			if got := r[k]; (got == nil) != (want < 0) || got != nil && got.Nano != nano(want) {
				t.Errorf("%s at %s: %s price %+v, want %v", c.model, c.at, k, got, want)
			}
		}
	}
	if r := b.Rates("Some GPU", day("2026-12-02"))[Effective]; r.Source != "contract 4711" || r.AsOf != "2026-12-01" {
		t.Errorf("an own price does not say whose it is and since when: %+v", r)
	}
}

func TestOneCurrencyOnANode(t *testing.T) {
	euro := Own{Key: "prices.own[0]", GPU: "*", PerHour: 2, Currency: "EUR", Kind: Contracted}
	elsewhere := Own{Key: "prices.own[1]", GPU: "*", Node: "other", PerHour: 2, Currency: "CHF"}
	for _, c := range []struct {
		cfg      Config
		currency string
		refused  []string
	}{
		{Config{Own: []Own{euro}}, "", []string{"prices.own[0].currency", "EUR", "USD", "none"}},
		{Config{Provider: NoProvider, Own: []Own{euro, elsewhere}}, "EUR", nil},
		{Config{Provider: NoProvider, Own: []Own{euro}, Energy: Energy{PerKWh: []float64{0.2}, Currency: "CHF"}}, "", []string{"energy.currency", "CHF", "EUR"}},
		{Config{Provider: NoProvider}, "", nil},
		{Config{Provider: NoProvider, Energy: Energy{PerKWh: []float64{0.2}, Currency: "CHF"}}, "CHF", nil},
		{Config{}, "USD", nil},
		{Config{Provider: "Oracle"}, "", []string{"prices.provider", "Oracle", "AWS, Azure, Lambda, Nebius, RunPod, none"}},
		{Config{Provider: "AWS", Region: "mars"}, "", []string{"prices.region", "mars", "us-east-1"}},
		{Config{Region: "mars"}, "", []string{"prices.region", "prices.provider"}},
		{Config{Energy: Energy{TimeZone: "Mars/Olympus"}}, "", []string{"energy.time_zone", "Mars/Olympus"}},
		{Config{Energy: Energy{PerKWh: make([]float64, 23)}}, "", []string{"energy.price_per_kwh_by_hour", "23", "24"}},
	} {
		b, err := NewBook(c.cfg)
		if (err != nil) != (c.refused != nil) {
			t.Errorf("%+v: error %v, want one that says %q", c.cfg, err, c.refused)
			continue
		}
		for _, want := range c.refused {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: the error does not say %q: %v", c.cfg, want, err)
			}
		}
		if err == nil && b.Currency() != c.currency {
			t.Errorf("%+v: the currency is %q, want %q", c.cfg, b.Currency(), c.currency)
		}
	}
}

func TestEnergyByTheHourOfTheDay(t *testing.T) {
	byHour := make([]float64, 24)
	for h := range byHour {
		byHour[h] = float64(h) / 100
	}
	b := book(t, Config{Energy: Energy{PerKWh: byHour, PUE: 1.5, Carbon: []float64{380}, TimeZone: "Asia/Kolkata"}})
	cost, carbon := b.Energy(time.Date(2026, 11, 30, 12, 29, 0, 0, time.UTC)) // 17:59 there
	if cost != nano(0.17*1.5) || carbon != nano(570) {
		t.Errorf("a kWh at 17:59 costs %d and causes %d, want 0.255 and 570 g in billionths", cost, carbon)
	}
	if cost, _ := b.Energy(time.Date(2026, 11, 30, 12, 30, 0, 0, time.UTC)); cost != nano(0.18*1.5) {
		t.Errorf("a kWh at 18:00 costs %d, want 0.27 in billionths", cost)
	}
	if cost, carbon := book(t, Config{}).Energy(noon); cost != 0 || carbon != 0 || b.HasCarbon() != true || book(t, Config{}).HasEnergyPrice() {
		t.Errorf("energy of unknown price costs %d and causes %d", cost, carbon)
	}
}

func TestDamagedTablesAreRefused(t *testing.T) {
	for what, tables := range map[string][2]string{
		"no head":      {"Tesla T4,T4,16,PCIe\n", pricesCSV},
		"no memory":    {"nvml_name,model,memory_gb,form\nTesla T4,T4,x,PCIe\n", pricesCSV},
		"a name twice": {productsCSV + "Tesla T4,T4,17,PCIe\n", pricesCSV},
		"undated":      {productsCSV, pricesCSV + "AWS,x,T4,16,PCIe,1,somebody,undated\n"},
		"no source":    {productsCSV, pricesCSV + "AWS,x,T4,16,PCIe,1,,2026-01-01\n"},
		"free":         {productsCSV, pricesCSV + "AWS,x,T4,16,PCIe,0,somebody,2026-01-01\n"},
	} {
		if _, err := load(tables[0], tables[1]); err == nil {
			t.Errorf("a table with %s is read", what)
		}
	}
}
