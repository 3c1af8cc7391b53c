package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"gpuvigil/internal/server"
)

func addAck(app *kingpin.Application) (string, command) {
	return addMark(app, "ack", "Say that you are at an incident: its messages show it, and it does not call again unless it gets worse.")
}

func addUnack(app *kingpin.Application) (string, command) {
	return addMark(app, "unack", "Take back what was said of an incident with ack or snooze.")
}

func addSnooze(app *kingpin.Application) (string, command) {
	return addMark(app, "snooze", "Keep an incident silent for a while, unless it gets worse; what still fires then calls again.")
}

// addMark adds a command that says something of an incident.
func addMark(app *kingpin.Application, what, help string) (string, command) {
	cmd := app.Command(what, help)
	id := cmd.Arg("INCIDENT", "Its id, or as many of its first letters as no other has: gpuvigil status and the messages show it.").Required().String()
	by := cmd.Flag("by", "Who says so. Default: your user's name.").String()
	state := addStateDir(cmd)
	snooze := new(time.Duration)
	if what == "snooze" {
		snooze = length(cmd.Flag("for", "How long.").Default("2h"), time.Second)
	}
	return cmd.FullCommand(), func(ctx context.Context, p *program) error {
		who, err := whoami(*by)
		if err != nil {
			return err
		}
		client, err := agentClient(*state)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, askLimit)
		defer cancel()
		m, err := client.Mark(ctx, *id, what, who, *snooze)
		if err != nil {
			return err
		}
		said := "nothing is said of it any more"
		if m.Mark != nil {
			said = m.Mark.String()
		}
		_, err = fmt.Fprintf(p.out, "%s  %s: %s\n", shortID(m.Incident), printable(m.Title), printable(said))
		return err
	}
}

// whoami returns who runs the command; behind sudo, who ran that.
func whoami(by string) (string, error) {
	if by = cmp.Or(by, os.Getenv("SUDO_USER")); by != "" {
		return by, nil
	}
	u, err := user.Current()
	if err != nil {
		return "", errors.New("find out who you are: say it with --by")
	}
	return u.Username, nil
}

func addDrill(app *kingpin.Application) (string, command) {
	cmd := app.Command("drill", "Rehearse: send an incident that is none, marked as a drill, on the way of all others, and end it after a while. It is in no metric of findings.")
	rule := cmd.Arg("RULE", "The rule whose incident is rehearsed.").Required().String()
	gpu := cmd.Flag("gpu", "Index or uuid of a GPU that it is to be about. Default: the node.").String()
	d := length(cmd.Flag("for", "How long it goes on.").Default("5m"), time.Second)
	state := addStateDir(cmd)
	return cmd.FullCommand(), func(ctx context.Context, p *program) error {
		client, err := agentClient(*state)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, askLimit)
		defer cancel()
		drilled, err := client.Drill(ctx, *rule, *gpu, *d)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(p.out, "DRILL %s: %s, until %s\n", drilled.Incident, printable(drilled.Title), timeOfDay(drilled.Until)); err != nil {
			return err
		}
		return printTold(p, drilled.Told)
	}
}

func addNotifyTest(app *kingpin.Application) (string, command) {
	cmd := app.Command("notify", "Try receivers.").Command("test", "Send a test message now, past everything that could keep it back, and say what became of it. Exits 1 if a receiver did not get it.")
	receiver := cmd.Arg("RECEIVER", "Its name in the configuration. Default: all.").String()
	state := addStateDir(cmd)
	return cmd.FullCommand(), func(ctx context.Context, p *program) error {
		client, err := agentClient(*state)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		told, err := client.Try(ctx, *receiver)
		if err != nil {
			return err
		}
		if err := printTold(p, told); err != nil {
			return err
		}
		for _, t := range told {
			if !t.Good {
				return exitCode(1)
			}
		}
		return nil
	}
}

func printTold(p *program, told []server.Told) error {
	if len(told) == 0 {
		_, err := fmt.Fprintln(p.out, "no receiver is configured under alerting")
		return err
	}
	for _, t := range told {
		if _, err := fmt.Fprintf(p.out, "%s %s\n", printable(t.Receiver), printable(t.What)); err != nil {
			return err
		}
	}
	return nil
}
