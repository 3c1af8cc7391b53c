package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"

	"gpuvigil/internal/cost"
	"gpuvigil/internal/ledger"
	"gpuvigil/internal/report"
)

// costs says where a report reads costs from.
type costs struct {
	local    *bool
	state    *string
	url      *string
	user     *string
	password *string
	bearer   *string
	tenant   *string
	match    *[]string
	timeout  *time.Duration
	history  *string
	step     *string
}

// steps are what --step may say.
var steps = map[string]time.Duration{"auto": 0, "hour": time.Hour, "day": 24 * time.Hour}

func addCosts(cmd *kingpin.CmdClause) *costs {
	return &costs{
		local:    cmd.Flag("local", "Ask the agent of this node for what it has booked.").Bool(),
		url:      cmd.Flag("prometheus.url", "Prometheus, VictoriaMetrics, Thanos or Mimir that scrapes the agents, such as http://prometheus:9090.").PlaceHolder("URL").String(),
		user:     cmd.Flag("prometheus.username", "User for basic authentication there.").String(),
		password: cmd.Flag("prometheus.password-file", "File with its password.").PlaceHolder("FILE").String(),
		bearer:   cmd.Flag("prometheus.bearer-token-file", "File with a bearer token for it.").PlaceHolder("FILE").String(),
		tenant:   cmd.Flag("prometheus.tenant", "Tenant, which Mimir wants in X-Scope-OrgID.").String(),
		match:    cmd.Flag("prometheus.match", "Read only series with this label, where it holds several clusters, such as 'cluster=\"a\"'; may be given several times.").PlaceHolder("MATCHER").Strings(),
		timeout:  length(cmd.Flag("prometheus.timeout", "How long all of its answers may take.").Default("2m"), time.Millisecond),
		history:  cmd.Flag("prometheus.history", "How far back its first sample is looked for: less where it refuses so long a query.").Default("400d").String(),
		step:     cmd.Flag("step", "How finely it is asked: by hour, by day, or auto, which is by hour up to eight days.").Default("auto").Enum("auto", "hour", "day"),
		state:    addStateDir(cmd),
	}
}

// ask returns what was booked. A zero since is whatever there is, a zero until now.
func (c *costs) ask(ctx context.Context, since, until time.Time) (*cost.Answer, error) {
	source, limit, err := c.source()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return source.Costs(ctx, since, until)
}

func (c *costs) source() (report.Source, time.Duration, error) {
	switch {
	case *c.local && *c.url != "":
		return nil, 0, wrongUsage{errors.New("found --local beside --prometheus.url, allowed: one of them")}
	case *c.local:
		client, err := agentClient(*c.state)
		return client, askLimit, err
	case *c.url == "":
		return nil, 0, wrongUsage{errors.New("nothing says where costs are to be read from: give --prometheus.url for all nodes, or --local for what this node's agent has booked")}
	}
	history, err := model.ParseDuration(*c.history)
	if err != nil || time.Duration(history) < 24*time.Hour {
		return nil, 0, wrongUsage{fmt.Errorf("--prometheus.history=%.40q is no length of time of a day or more: write it as 30d", *c.history)}
	}
	cfg := report.EngineConfig{URL: *c.url, User: *c.user, Tenant: *c.tenant, Match: *c.match, Step: steps[*c.step], History: time.Duration(history), Busy: ledger.BusyMeans()}
	if *c.password != "" {
		cfg.Password = secret(*c.password, "")
	}
	if *c.bearer != "" {
		cfg.Bearer = secret(*c.bearer, "")
	}
	engine, err := report.NewEngine(cfg)
	if err != nil {
		return nil, 0, wrongUsage{err} // it has asked nobody yet
	}
	return engine, *c.timeout, nil
}
