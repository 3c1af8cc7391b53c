package config

import (
	"fmt"
	"maps"
	"path"
	"slices"
)

// Change says who may change what runs on the pool that the node belongs to.
type Change string

// The kinds of pools.
const (
	Free       Change = "free"       // people try things: what is new is inventory and no finding
	Controlled Change = "controlled" // what is not known here, or not isolated, is a finding
)

// Versions says which versions are wanted.
type Versions struct {
	// Approved are the versions that a component may have, as globs by component; of a
	// component that is not in it nothing is judged.
	Approved map[string][]string `yaml:"approved"`
	KnownBad []BadVersion        `yaml:"known_bad"` // beside those that the program knows
}

// BadVersion is versions of a component that must not run here.
type BadVersion struct {
	Component string   `yaml:"component"`
	Versions  []string `yaml:"versions"` // globs
	Why       string   `yaml:"why"`
}

func (v *Versions) check(fail func(key, format string, args ...any)) {
	for _, component := range slices.Sorted(maps.Keys(v.Approved)) {
		checkGlobs(v.Approved[component], "versions.approved."+clean(component), fail)
	}
	for i, b := range v.KnownBad {
		key := fmt.Sprintf("versions.known_bad[%d]", i)
		if b.Component == "" || !plainName(b.Component) {
			fail(key+".component", "found %q, allowed: a component as `gpuvigil inventory` names it: driver, nccl, torch", clean(b.Component))
		}
		if b.Why == "" || !plainName(b.Why) {
			fail(key+".why", "found %q, allowed: a sentence that says what is wrong with it", clean(b.Why))
		}
		checkGlobs(b.Versions, key+".versions", fail)
	}
}

func checkGlobs(globs []string, key string, fail func(key, format string, args ...any)) {
	if len(globs) == 0 {
		fail(key, "is empty, allowed: one or more versions; * stands for any letters, as in 570.*")
	}
	for i, glob := range globs {
		if _, err := path.Match(glob, ""); err != nil || glob == "" {
			fail(fmt.Sprintf("%s[%d]", key, i), "found %q, allowed: a version in which * stands for any letters and ? for one, as in 570.*", clean(glob))
		}
	}
}
