package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// reading is what nvidia-smi tells of one GPU.
type reading struct {
	uuid, name string             // empty if the GPU did not tell
	values     map[string]float64 // by query, in the unit of the header; NaN where there is none
}

// parse reads the output of nvidia-smi --query-gpu=… --format=csv.
func parse(text io.Reader) ([]reading, error) {
	r := csv.NewReader(text)
	r.TrimLeadingSpace = true
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read nvidia-smi's table: %w", err)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("read nvidia-smi's table: %w", io.ErrUnexpectedEOF)
	}
	var all []reading
	for _, row := range rows[1:] {
		one := reading{values: map[string]float64{}}
		for i, header := range rows[0] {
			name, _, _ := strings.Cut(header, " [")
			switch name {
			case "uuid":
				one.uuid = known(row[i])
			case "name":
				one.name = known(row[i])
			case "index", "driver_version":
			default:
				if one.values[name], err = number(row[i]); err != nil {
					return nil, fmt.Errorf("read nvidia-smi's %s: %w", name, err)
				}
			}
		}
		all = append(all, one)
	}
	return all, nil
}

// known is empty for what stands in place of a value: [N/A], [GPU is lost].
func known(s string) string {
	if strings.HasPrefix(s, "[") || s == "N/A" {
		return ""
	}
	return s
}

// number reads "97 %", "612.40 W" and "0x4"; NaN where nvidia-smi tells none.
func number(s string) (float64, error) {
	if s = known(s); s == "" {
		return math.NaN(), nil
	}
	s, _, _ = strings.Cut(s, " ")
	if strings.HasPrefix(s, "0x") {
		bits, err := strconv.ParseUint(s, 0, 64)
		return float64(bits), err
	}
	return strconv.ParseFloat(s, 64)
}
