package main

import (
	"strings"
	"testing"
)

// TestAWrongValueNamesItsFlag, whatever the command and the kind of value.
func TestAWrongValueNamesItsFlag(t *testing.T) {
	for line, says := range map[string]string{
		"record --output=x --simulate.seed=-1":                   `--simulate.seed: "-1" is no whole number from 0 on`,
		"record --output=x --simulate.seed=99999999999999999999": `--simulate.seed: "99999999999999999999" is out of range`,
		"record --output=x --for=long":                           `--for: "long" is no length of time`,
		"record --output=x --for=5":                              `--for: "5" is no length of time`,
		"record --output=x --for=0s":                             "--for: 0s is less than 1ms",
		"backtest --workers=two":                                 `--workers: "two" is no whole number`,
		"backtest --workers=2.7":                                 `--workers: "2.7" is no whole number`,
		"backtest --workers=-1":                                  "--workers: -1 is less than 0",
		"backtest --step=1":                                      `--step: "1" is no length of time`,
		"backtest --detector=magic":                              "--detector: enum value must be one of",
		"health --gpus=many":                                     `--gpus: "many" is no whole number`,
		"health --gpus=-1":                                       "--gpus: -1 is less than 0",
		"health --max-age=-1m":                                   "--max-age: -1m0s is less than",
		"status --gpus=NaN":                                      `--gpus: "NaN" is no whole number`,
		"snooze abc --for=-2h":                                   "--for: -2h0m0s is less than",
		"drill xid --for=0":                                      "--for: 0s is less than",
		"release --for=-1s":                                      "--for: -1s is less than 0s",
		"report cost --prometheus.timeout=x":                     `--prometheus.timeout: "x" is no length of time`,
		"report cost --step=week":                                "--step: enum value must be one of",
		"run --log.level=loud":                                   "--log.level: ",
	} {
		want := int(exitUnknown)
		args := strings.Fields(line)
		if args[0] == "health" {
			want = int(exitHealthUnknown)
		}
		if code, out, errs := gpuvigil(t, args...); code != want || out != "" || !strings.HasPrefix(errs, "gpuvigil: "+says) {
			t.Errorf("gpuvigil %s: exit %d and %q, want %d and %q", line, code, errs, want, says)
		}
	}
}
