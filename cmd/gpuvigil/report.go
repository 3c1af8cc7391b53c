package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"

	"gpuvigil/internal/report"
)

func addCostReport(app *kingpin.Application) (string, command) {
	reports := app.Command("report", "Write a report.")
	cmd := reports.Command("cost", "What the GPUs cost, and how much of it was busy, idle, held or free.")
	from := addCosts(cmd)
	by := cmd.Flag("by", "What to write a line for.").Default(string(report.ByTeam)).Enum(report.Groups()...)
	since := cmd.Flag("since", "How far back: a time such as 12h or 30d, or all for what there is. Hours are whole.").Default("30d").String()
	format := cmd.Flag("format", "How to write it.").Default(string(report.Table)).Enum(report.Formats()...)
	freeze := cmd.Flag("freeze", "Write a month that is over to this directory, for good; a month that is there already gets corrections only.").PlaceHolder("DIR").String()
	month := cmd.Flag("month", "The month that --freeze writes, such as 2026-01, in UTC. Default: the last that is over.").String()
	accept := cmd.Flag("accept-gap", "Freeze a month although time of this node is in no sample: it left for good, or they are lost. May be given several times.").PlaceHolder("NODE").Strings()
	return cmd.FullCommand(), func(ctx context.Context, p *program) error {
		switch {
		case *freeze != "":
			return freezeMonth(ctx, p, from, *freeze, *month, *accept)
		case len(*accept) > 0:
			return wrongUsage{errors.New("found --accept-gap without --freeze, allowed: both")}
		case *month != "":
			return wrongUsage{errors.New("found --month without --freeze, allowed: both")}
		}
		begin, err := beginning(*since, time.Now())
		if err != nil {
			return err
		}
		answer, err := from.ask(ctx, begin, time.Time{})
		if err != nil {
			return err
		}
		r, err := report.New(answer, begin, report.By(*by))
		if err != nil {
			return err
		}
		for _, g := range r.Gaps {
			if *format != string(report.FOCUS) {
				break // the others say it themselves
			}
			p.log.Warn("Time of a node's GPUs is in no sample, and in no line of the report.", "node", g.Node, "gpus", g.GPUs, "gpu_hours", time.Duration(g.Time).Hours(), "from", g.From, "to", g.To)
		}
		return r.Write(p.out, report.Format(*format))
	}
}

func addBudgetReport(app *kingpin.Application) (string, command) {
	cmd := app.GetCommand("report").Command("budget", "What each team has spent this month, what the month will have cost at its end, and whether that is within its budget.")
	from := addCosts(cmd)
	format := cmd.Flag("format", "How to write it.").Default(string(report.Table)).Enum(string(report.Table), string(report.JSON))
	return cmd.FullCommand(), func(ctx context.Context, p *program) error {
		now := time.Now().UTC()
		answer, err := from.ask(ctx, time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC), time.Time{})
		var early *report.TooEarlyError
		if errors.As(err, &early) { // then it says of what time it is
			answer, err = from.ask(ctx, time.Time{}, time.Time{})
		}
		if err != nil {
			return err
		}
		return report.NewBudgets(answer).Write(p.out, report.Format(*format))
	}
}

func freezeMonth(ctx context.Context, p *program, from *costs, dir, month string, accept []string) error {
	now := time.Now()
	since, until, err := report.Month(month, now)
	if err != nil {
		return wrongUsage{err}
	}
	answer, err := from.ask(ctx, since, until)
	if err != nil {
		return err
	}
	said, err := report.Freeze(dir, answer, since, now, accept...)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.out, said)
	return err
}

// beginning returns since when a report is asked for; zero for whatever there is.
func beginning(text string, now time.Time) (time.Time, error) {
	if text == "all" {
		return time.Time{}, nil
	}
	d, err := model.ParseDuration(text)
	if err != nil || d <= 0 {
		return time.Time{}, wrongUsage{fmt.Errorf("--since=%.40q is no length of time: write 12h or 30d, or all for what there is", text)}
	}
	return now.Add(-time.Duration(d)).UTC(), nil
}
