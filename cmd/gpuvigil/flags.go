package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
)

// named names the flag or the argument whose value cannot be read, which the error of
// the parser does not.
func named(app *kingpin.Application, args []string, err error) error {
	parsed, _ := app.ParseContext(args) // what is wrong is err
	if parsed == nil {
		return err
	}
	for _, e := range parsed.Elements {
		var name string
		var value kingpin.Value
		switch clause := e.Clause.(type) {
		case *kingpin.FlagClause:
			name, value = "--"+clause.Model().Name, clause.Model().Value
		case *kingpin.ArgClause:
			name, value = "<"+clause.Model().Name+">", clause.Model().Value
		}
		if value == nil || e.Value == nil {
			continue
		}
		if again := value.Set(*e.Value); again != nil && again.Error() == err.Error() {
			return fmt.Errorf("%s: %w", name, plainly(*e.Value, again))
		}
	}
	return err
}

// plainly says in words what Go's parsers say of a value.
func plainly(value string, err error) error {
	number := (*strconv.NumError)(nil)
	switch {
	case errors.As(err, &number) && errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%.60q is out of range", value)
	case errors.As(err, &number) && number.Func == "ParseUint":
		return fmt.Errorf("%.60q is no whole number from 0 on", value)
	case errors.As(err, &number) && number.Func == "ParseInt":
		return fmt.Errorf("%.60q is no whole number", value)
	case errors.As(err, &number) && number.Func == "ParseBool":
		return fmt.Errorf("%.60q is neither true nor false", value)
	case strings.HasPrefix(err.Error(), "time: "):
		return fmt.Errorf("%.60q is no length of time: give one like 90s, 5m or 2h", value)
	}
	return err
}

// whole is the value of a flag that counts something; n until it is given.
func whole(f *kingpin.FlagClause, n, least int) *int {
	w := &wholeValue{n, least}
	f.SetValue(w)
	return &w.n
}

type wholeValue struct{ n, least int }

func (w *wholeValue) String() string { return strconv.Itoa(w.n) }

func (w *wholeValue) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 0)
	if err == nil && int(n) < w.least {
		err = fmt.Errorf("%d is less than %d", n, w.least)
	}
	if err == nil {
		w.n = int(n)
	}
	return err
}

// length is the value of a flag that says how long something takes, which cannot be less
// than least.
func length(f *kingpin.FlagClause, least time.Duration) *time.Duration {
	l := &lengthValue{least: least}
	f.SetValue(l)
	return &l.d
}

type lengthValue struct{ d, least time.Duration }

func (l *lengthValue) String() string { return l.d.String() }

func (l *lengthValue) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err == nil && d < l.least {
		err = fmt.Errorf("%s is less than %s", d, l.least)
	}
	if err == nil {
		l.d = d
	}
	return err
}
