package main

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"

	"gpuvigil/collector/series"
	"gpuvigil/detect"
	"gpuvigil/internal/config"
)

// optional is the value of a flag for a number that may not be given.
type optional struct{ to **int }

func (o *optional) String() string { return "" }

func (o *optional) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil {
		return fmt.Errorf("found %q, allowed: a number from 0", s)
	}
	*o.to = &n
	return nil
}

// chooseShard puts the index of the flag into the configuration, if one is given.
func chooseShard(cfg *config.Config, index *int) error {
	if index == nil {
		return nil
	}
	cfg.Fleet.Shard.Index = *index
	var errs []error
	cfg.Fleet.Shard.Check(func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("with --shard.index=%d: %s: %s", *index, key, fmt.Sprintf(format, args...)))
	})
	return errors.Join(errs...)
}

func shardOf(cfg *config.Config) series.Shard {
	s := cfg.Fleet.Shard
	return series.Shard{Index: s.Index, Of: s.Of, By: s.By}
}

// shardBudget is the shard's part of the false findings that a week may have. Where the
// configuration says of how many GPUs, the budget is divided over those already.
func shardBudget(cfg *config.Config) detect.Budget {
	b := budget(cfg.Budget)
	if b.GPUs == 0 {
		b.Pages, b.Tickets = b.Pages/float64(cfg.Fleet.Shard.Of), b.Tickets/float64(cfg.Fleet.Shard.Of)
	}
	return b
}

// fleetInstance tells the role's series, as it sends them itself, from those of the other
// shards.
func fleetInstance(cfg *config.Config) string {
	name := cmp.Or(cfg.Cluster, "cluster")
	if s := cfg.Fleet.Shard; s.Of > 1 {
		name = fmt.Sprintf("%s-%d", name, s.Index)
	}
	return name
}
