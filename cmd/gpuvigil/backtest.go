package main

import (
	"context"
	"fmt"

	"github.com/alecthomas/kingpin/v2"

	"gpuvigil/internal/backtest"
)

func addBacktest(app *kingpin.Application) (string, command) {
	cmd := app.Command("backtest", "Run a detector over files of recorded series (CSV: timestamp,value) and write the score of each row; a score of 1 and above is an alarm. Exits 1 if a file cannot be read.")
	var o backtest.Options
	cmd.Flag("series", "Directory of .csv files, read with all below it. A "+backtest.MapFile+" in it may say what they are.").Required().PlaceHolder("DIR").StringVar(&o.Series)
	cmd.Flag("scores-out", "Directory that gets a file of scores for each, at the same relative path.").Required().PlaceHolder("DIR").StringVar(&o.Scores)
	cmd.Flag("detector", "What to run: level (with leak) or leak on each file alone; straggler on the files of one directory, as peers of one job.").Default("level").EnumVar(&o.Detector, backtest.Detectors()...)
	cmd.Flag("workers", "How many files, or groups of peers, to score at a time; 0: one for each CPU.").Default("0").IntVar(&o.Workers)
	return cmd.FullCommand(), func(ctx context.Context, p *program) error {
		sum, err := backtest.Run(ctx, o)
		if _, printing := fmt.Fprintf(p.out, "%s: %d files, %d rows, of which %d without a value and %d with an alarm\n", o.Detector, sum.Files, sum.Rows, sum.Absent, sum.Alarms); err == nil {
			err = printing
		}
		return err
	}
}
