package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"gpuvigil/internal/backtest"
	"gpuvigil/internal/synth"
	"gpuvigil/rules"
)

func addBacktest(app *kingpin.Application) (string, command) {
	cmd := app.Command("backtest", "Run detectors over what was recorded. With --series: one detector over files of series (CSV: timestamp,value), with the score of each row; a score of 1 and above is an alarm. "+
		"With --recording: all rules over files of gpuvigil record, with what they would have told. With --prometheus.url or --openmetrics: the same over the past of a fleet. Exits 1 if something cannot be read.")
	var o backtest.Options
	cmd.Flag("series", "Directory of .csv files, read with all below it. A "+backtest.MapFile+" in it may say what they are.").PlaceHolder("DIR").StringVar(&o.Series)
	cmd.Flag("scores-out", "With --series: directory that gets a file of scores for each, at the same relative path.").PlaceHolder("DIR").StringVar(&o.Scores)
	detector := cmd.Flag("detector", "With --series: what to run: level (with leak), which is the default, or leak on each file alone; straggler on the files of one directory, as peers of one job.").Enum(backtest.Detectors()...)
	var r recordings
	cmd.Flag("recording", "File of gpuvigil record, of one node, may be packed by gzip; may be repeated.").PlaceHolder("FILE").StringsVar(&r.files)
	cmd.Flag("labels", "Not with --series: file that says what was really wrong (CSV or JSON, docs/backtest.md), for precision, recall and delay.").PlaceHolder("FILE").StringVar(&r.labels)
	cmd.Flag("json", "Not with --series: file that gets the results for programs.").PlaceHolder("FILE").StringVar(&r.json)
	cmd.Flag("charts", "Not with --series: file that gets one HTML page with charts.").PlaceHolder("FILE.html").StringVar(&r.charts)
	r.history.add(cmd)
	workers := whole(cmd.Flag("workers", "How many files, groups of peers, or nodes to take at a time; 0: one for each CPU.").Default("0"), 0, 0)
	return cmd.FullCommand(), func(ctx context.Context, p *program) error {
		o.Detector, o.Workers = *detector, *workers
		if err := r.check(o); err != nil {
			return wrongUsage{err}
		}
		if r.history.given() {
			return r.replayHistory(ctx, p, o.Workers)
		}
		if len(r.files) > 0 {
			return r.replay(ctx, p, o.Workers)
		}
		if o.Detector == "" {
			o.Detector = "level"
		}
		sum, err := backtest.Run(ctx, o)
		for _, d := range sum.Disorder {
			fmt.Fprintln(p.errs, d)
		}
		if place := (*backtest.PlaceError)(nil); errors.As(err, &place) {
			return wrongUsage{fmt.Errorf("--series %s --scores-out %s: %w", o.Series, o.Scores, place)}
		}
		return errors.Join(err, writeSummary(p.out, o.Detector, sum))
	}
}

// writeSummary writes nothing of a run that read nothing.
func writeSummary(w io.Writer, detector string, sum backtest.Summary) error {
	if sum.Files == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "%s: %s, %s, of which %d without a value and %d with an alarm\n", detector, number(sum.Files, "file"), number(sum.Rows, "row"), sum.Absent, sum.Alarms)
	if len(sum.Unjudged) > 0 && err == nil {
		_, err = fmt.Fprintf(w, "%s: not judged, for there were never four members with a value at one time: %s\n", detector, strings.Join(sum.Unjudged, ", "))
	}
	return err
}

// recordings are those to replay, and where the results go.
type recordings struct {
	files                []string
	labels, json, charts string
	history              historyFlags // instead of files
}

// check refuses flags that do not belong together.
func (r *recordings) check(o backtest.Options) error {
	if err := r.history.check(len(r.files) > 0 || o.Series != ""); err != nil {
		return err
	}
	replays := len(r.files) > 0 || r.history.given()
	switch {
	case replays && o.Series != "":
		return errors.New("--series and --recording are two different backtests: give one of them")
	case replays && (o.Scores != "" || o.Detector != ""):
		return errors.New("--scores-out and --detector go with --series alone")
	case !replays && r.labels+r.json+r.charts != "":
		return errors.New("--labels, --json and --charts do not go with --series")
	case !replays && o.Series == "":
		return errors.New("give --series DIR with --scores-out DIR, --recording FILE, --prometheus.url URL or --openmetrics FILE")
	case !replays && o.Scores == "":
		return errors.New("--series needs --scores-out DIR for the scores")
	}
	return r.apart()
}

// apart refuses to write a result over what is read, or over the other result.
func (r *recordings) apart() error {
	type flagged struct{ flag, path string }
	var taken []flagged
	for _, f := range r.files {
		taken = append(taken, flagged{"--recording", f})
	}
	taken = append(taken, flagged{"--labels", r.labels}, flagged{"--openmetrics", r.history.file})
	for _, out := range []flagged{{"--json", r.json}, {"--charts", r.charts}} {
		if out.path == "" {
			continue
		}
		for _, t := range taken {
			if t.path != "" && backtest.SameFile(t.path, out.path) {
				return fmt.Errorf("%s %s would overwrite %s %s: give it a file of its own", out.flag, out.path, t.flag, t.path)
			}
		}
		taken = append(taken, out)
	}
	return nil
}

func (r *recordings) replay(ctx context.Context, p *program, workers int) error {
	truths, err := r.truths()
	if err != nil {
		return err
	}
	done, err := backtest.Replay(ctx, backtest.ReplayOptions{Recordings: r.files, Truths: truths, Labelled: r.labels != "", Workers: workers, Log: p.log})
	if done == nil {
		return err
	}
	return errors.Join(err, r.write(p, done))
}

// truths reads the labels, if there are any.
func (r *recordings) truths() ([]backtest.Truth, error) {
	if r.labels == "" {
		return nil, nil
	}
	return backtest.ReadLabels(r.labels, kindOfFault)
}

func (r *recordings) write(p *program, done *backtest.Replayed) error {
	return errors.Join(done.WriteText(p.out), toFile(r.json, done.WriteJSON), toFile(r.charts, done.WriteCharts))
}

// kindOfFault tells the rules that find a synthetic fault, so that labels can name it.
func kindOfFault(name string) (finds, also []rules.ID, known bool) {
	for _, c := range synth.Cases() {
		if c.Name == name && !c.Healthy() {
			return c.Rules, c.Also, true
		}
	}
	return nil, nil, false
}

// toFile writes a file anew, unless it has no name.
func toFile(path string, write func(io.Writer) error) (err error) {
	if path == "" {
		return nil
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	defer func() {
		if closed := file.Close(); err == nil {
			err = closed
		}
	}()
	if err := write(file); err != nil {
		return fmt.Errorf("write the results to %s: %w", path, err)
	}
	return nil
}
