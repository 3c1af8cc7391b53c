// Command gpucheck compares what a running gpuvigil tells with what nvidia-smi tells at the same time, field by field.
// It only reads. It has been tested on recorded output; nobody has run it on a machine with a GPU yet.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"gpuvigil/internal/metric"
)

func main() {
	url := flag.String("url", "http://127.0.0.1:9836/metrics", "gpuvigil's metrics")
	dir := flag.String("out", ".", "directory for the report and for all that was compared")
	length := flag.Duration("for", 3*time.Minute, "how long")
	every := flag.Duration("every", 3*time.Second, "time between rounds")
	flag.Parse()
	ok, err := check(context.Background(), *url, *dir, *length, *every)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpucheck:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// check compares until the time is over, and reports whether all agreed.
func check(ctx context.Context, url, dir string, length, every time.Duration) (bool, error) {
	if err := seen(ctx, url); err != nil {
		return false, err
	}
	var all tallies
	rounds := 0
	for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(every) {
		name := func(what string) string { return filepath.Join(dir, fmt.Sprintf("%03d-%s", rounds, what)) }
		before, err := scrape(ctx, url, name("before.prom"))
		if err != nil {
			return false, err
		}
		smi, err := ask(ctx, name("nvidia-smi.csv"))
		if err != nil {
			return false, err
		}
		// gpuvigil's next sample is then newer than nvidia-smi's.
		time.Sleep(1100 * time.Millisecond)
		after, err := scrape(ctx, url, name("after.prom"))
		if err != nil {
			return false, err
		}
		all.compare(smi, before, after)
		rounds++
	}
	text, ok := report(all)
	fmt.Print(text)
	return ok, os.WriteFile(filepath.Join(dir, "report.txt"), []byte(text), 0o644)
}

var errNoGPU = errors.New("no GPU on its page")

// seen waits until gpuvigil sees a GPU: without persistence mode a driver takes some seconds for each.
func seen(ctx context.Context, url string) error {
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		var p page
		if p, err = scrape(ctx, url, os.DevNull); err == nil && p[metric.Temperature.Name] != nil {
			return nil
		}
	}
	return fmt.Errorf("gpuvigil at %s tells of no GPU; its log says why: %w", url, cmp.Or(err, errNoGPU))
}

// report writes a line for each field of each GPU. Nothing compared is not all agreed.
func report(all tallies) (string, bool) {
	var b strings.Builder
	ok, compared := true, 0
	for _, t := range all {
		verdict := "ok"
		if !t.ok() {
			verdict, ok = "DIFFERS", false
		}
		compared += t.agreed
		fmt.Fprintf(&b, "%-8s %s %-38s %d of %d agree, neither tells %d, only gpuvigil %d; %s\n",
			verdict, t.uuid, t.query, t.agreed, t.rounds, t.neither, t.only, cmp.Or(t.example, "never apart"))
	}
	if compared == 0 {
		return b.String() + "no value was compared\n", false
	}
	return b.String(), ok
}

func scrape(ctx context.Context, url, keep string) (page, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("scrape gpuvigil (is it running?): %w", err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("scrape %s: %w", url, err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("scrape %s: %s", url, answer.Status)
	}
	if err := os.WriteFile(keep, body, 0o644); err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(bytes.NewReader(body))
}

func ask(ctx context.Context, keep string) ([]reading, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu="+strings.Join(queries(), ","), "--format=csv")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("ask nvidia-smi: %w\n%s", err, out)
	}
	if err := os.WriteFile(keep, out, 0o644); err != nil {
		return nil, err
	}
	return parse(bytes.NewReader(out))
}
