package main

import (
	"context"
	"fmt"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/alerting/slack"
	"gpuvigil/internal/config"
	"gpuvigil/internal/server"
)

// slackSnooze is for how long the button in Slack snoozes, as its label says.
const slackSnooze = 2 * time.Hour

// listeners returns what takes presses of buttons in Slack until its context ends: one for
// each app, in however many channels its messages are. The receivers are those of the
// configuration, in its order.
func listeners(cfg *config.Config, receivers []alerting.Receiver, press func(slack.Press) error) (runs []func(context.Context)) {
	type app struct{ file, env, url string }
	heard := map[app]bool{}
	for i, s := range cfg.Alerting.Slack {
		of := app{s.AppTokenFile, s.AppTokenEnv, s.APIURL}
		bot, ok := receivers[i].Notifier.(*slack.Bot)
		if s.AppTokenFile == "" && s.AppTokenEnv == "" || heard[of] || !ok {
			continue
		}
		heard[of] = true
		runs = append(runs, func(ctx context.Context) { bot.Listen(ctx, press) })
	}
	return runs
}

// press does what a button in Slack says.
func (d *desk) press(p slack.Press) error {
	m := &server.Mark{By: p.By, At: time.Now()}
	switch p.What {
	case slack.Ack:
	case slack.Unack:
		m = nil
	case slack.Snooze:
		m.Until = m.At.Add(slackSnooze)
	default:
		return fmt.Errorf("this button is not known: it says %.40q", p.What)
	}
	_, err := d.mark(p.Incident, m)
	return err
}
