package price

import (
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// product is what is sold under one price: H100 is several of them.
type product struct {
	model  string
	memory int // GB, as it is sold
	form   string
}

// listed is a row of the built-in list.
type listed struct {
	product
	Rate
}

//go:embed products.csv
var productsCSV string

//go:embed prices.csv
var pricesCSV string

// builtIn is what the program brings along.
type builtIn struct {
	products map[string]product // by the whole name that NVML gives
	prices   []listed
}

// load reads the built-in tables. An error in them is one of the program.
func load(products, prices string) (*builtIn, error) {
	b := &builtIn{products: map[string]product{}}
	err := rows("products.csv", products, []string{"nvml_name", "model", "memory_gb", "form"}, func(r []string) error {
		p, err := parseProduct(r[1], r[2], r[3])
		if _, twice := b.products[r[0]]; twice {
			err = fmt.Errorf("%q stands twice", r[0])
		}
		b.products[r[0]] = p
		return err
	})
	if err != nil {
		return nil, err
	}
	err = rows("prices.csv", prices, []string{"provider", "region", "model", "memory_gb", "form", "usd_per_gpu_hour", "source", "as_of"}, func(r []string) error {
		p, err := parseProduct(r[2], r[3], r[4])
		if err != nil {
			return err
		}
		perHour, err := strconv.ParseFloat(r[5], 64)
		if err != nil || !(perHour > 0) {
			return fmt.Errorf("price %q: want a number above 0", r[5])
		}
		if _, err := time.Parse(time.DateOnly, r[7]); err != nil || r[6] == "" {
			return fmt.Errorf("source %q of %q: a price has both", r[6], r[7])
		}
		b.prices = append(b.prices, listed{p, Rate{Kind: List, Nano: nano(perHour), Currency: "USD", Provider: r[0], Region: r[1], Source: r[6], AsOf: r[7]}})
		return nil
	})
	return b, err
}

func rows(name, text string, head []string, each func([]string) error) error {
	all, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if len(all) == 0 || !slices.Equal(all[0], head) {
		return fmt.Errorf("%s: the first line is not %v", name, head)
	}
	for i, r := range all[1:] {
		if err := each(r); err != nil {
			return fmt.Errorf("%s:%d: %w", name, i+2, err)
		}
	}
	return nil
}

func parseProduct(model, memory, form string) (product, error) {
	gb, err := strconv.Atoi(memory)
	if err != nil || gb <= 0 || model == "" || form == "" {
		return product{}, errors.Join(err, fmt.Errorf("product %q, %q GB, %q: each must be given", model, memory, form))
	}
	return product{model, gb, form}, nil
}

// nano returns an amount in billionths.
func nano(v float64) int64 { return int64(math.Round(v * 1e9)) }
