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

func addReport(app *kingpin.Application) (string, command) {
	reports := app.Command("report", "Write a report.")
	cmd := reports.Command("cost", "What the GPUs cost, and how much of it was busy, idle, held or free.")
	local := cmd.Flag("local", "Ask the agent of this node for what it has booked.").Bool()
	by := cmd.Flag("by", "What to write a line for.").Default(string(report.ByTeam)).Enum(report.Groups()...)
	since := cmd.Flag("since", "How far back: a time such as 12h or 30d, or all for what there is. Hours are whole.").Default("30d").String()
	format := cmd.Flag("format", "How to write it.").Default(string(report.Table)).Enum(report.Formats()...)
	state := addStateDir(cmd)
	return cmd.FullCommand(), func(ctx context.Context, p *program) error {
		from, err := beginning(*since, time.Now())
		if err != nil {
			return err
		}
		if !*local {
			return errors.New("nothing says where costs are to be read from: give --local for what this node's agent has booked")
		}
		source, err := agentClient(*state)
		if err != nil {
			return err
		}
		return writeCosts(ctx, p, source, from, report.By(*by), report.Format(*format))
	}
}

func writeCosts(ctx context.Context, p *program, source report.Source, since time.Time, by report.By, format report.Format) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	answer, err := source.Costs(ctx, since, time.Time{})
	if err != nil {
		return err
	}
	r, err := report.New(answer, since, by)
	if err != nil {
		return err
	}
	return r.Write(p.out, format)
}

// beginning returns the hour in which the report begins; zero for whatever there is.
func beginning(text string, now time.Time) (time.Time, error) {
	if text == "all" {
		return time.Time{}, nil
	}
	d, err := model.ParseDuration(text)
	if err != nil || d <= 0 {
		return time.Time{}, fmt.Errorf("--since=%.40q is no length of time: write 12h or 30d, or all for what there is", text)
	}
	return now.Add(-time.Duration(d)).UTC().Truncate(time.Hour), nil
}
