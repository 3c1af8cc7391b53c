// Package scrape is the sources that read another exporter's page in place of the
// driver or of the kernel's files: dcgm-exporter or nvidia_gpu_exporter for the GPUs,
// node_exporter for the host. What such a page does not tell is absent.
package scrape

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/collector/exposition"
	"gpuvigil/collector/page"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/text"
)

// The names of the sources.
const (
	GPUSource  = "gpu_exporter"
	NodeSource = "node_exporter"
)

// The exporters whose pages are understood.
const (
	DCGM         = "dcgm-exporter"
	SMI          = "nvidia_gpu_exporter"
	NodeExporter = "node_exporter"
)

const (
	maxPage    = 16 << 20 // bytes; dcgm-exporter serves about 40 KiB for 8 GPUs
	maxSamples = 100_000  // of interest; 64 GPUs in 7 instances with everything switched on have 60,000
	maxName    = 256      // letters of what a label names
	foundNames = 5        // of a page that is not understood, that are named
)

// pageReader reads the samples of a page one after the other, without keeping it.
type pageReader struct {
	source string
	page   *page.Page
	buffer *bufio.Reader
	labels []exposition.Label
}

func newPageReader(source string, p *page.Page) pageReader {
	return pageReader{source: source, page: p, buffer: bufio.NewReaderSize(nil, 64<<10)}
}

// content is what takes a page's samples in.
type content interface {
	// Wants reports whether samples of the name are of interest.
	Wants(name []byte) bool
	// Sample takes one in. The name and labels are good until it returns.
	Sample(name []byte, labels []exposition.Label, v float64) error
}

// read reads the page into c. If nothing on it was of interest, found are some of
// the names that there are. The error is a *page.Failure.
func (r *pageReader) read(ctx context.Context, c content) (found []string, err error) {
	resp, err := r.page.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return r.take(resp.Body, c)
}

func (r *pageReader) take(body io.Reader, c content) (found []string, err error) {
	r.buffer.Reset(io.LimitReader(body, maxPage+1))
	defer r.buffer.Reset(nil)
	if head, err := page.Begin(r.buffer); err != nil {
		return nil, err
	} else if head == '[' || head == '{' {
		return nil, page.Failing("json", "it serves something like JSON: is this the metrics path?")
	}
	lines, n := exposition.NewLines(r.buffer), 0
	for {
		line, err := lines.Next()
		switch {
		case lines.Read() > maxPage:
			return nil, page.Failing("too_large", "its page is larger than %d MiB", maxPage>>20)
		case errors.Is(err, io.EOF):
			if n > 0 {
				found = nil
			}
			return found, nil
		case err != nil:
			return nil, page.Broken(err)
		}
		name, rest := exposition.Name(line)
		if name == nil {
			continue
		}
		if !c.Wants(name) {
			found = remember(found, name)
			continue
		}
		if n++; n > maxSamples {
			return nil, page.Failing("too_large", "its page has more than %d samples that are of interest", maxSamples)
		}
		labels, v, err := exposition.Sample(rest, r.labels[:0])
		if err == nil {
			r.labels = labels[:0]
			err = c.Sample(name, labels, v)
		}
		if err != nil {
			return nil, page.Broken(err)
		}
	}
}

// remember keeps some of the names of a page.
func remember(found []string, name []byte) []string {
	if len(found) == foundNames || slices.ContainsFunc(found, func(s string) bool { return s == string(name) }) {
		return found
	}
	return append(found, string(name))
}

// strange is the error of a page that is not one that was expected.
func strange(known string, found []string) error {
	if len(found) == 0 {
		return page.Failing("unknown_page", "its page has no sample: known are pages of %s", known)
	}
	for i := range found {
		found[i] = text.Clean(found[i], 60)
	}
	return page.Failing("unknown_page", "its page is of another program, with names such as %s: known are pages of %s", strings.Join(found, ", "), known)
}

// failed counts a look that failed and says what it was at.
func (r *pageReader) failed(what string, err error) error {
	vm.GetOrCreateCounter(metric.PageFailures.Series(r.source, page.Reason(err))).Inc()
	return fmt.Errorf("read %s from the page %s: %w", what, r.page.URL(), err)
}

// valueOf returns a label's value, nil if there is none.
func valueOf(labels []exposition.Label, name string) []byte {
	for i := range labels {
		if string(labels[i].Name) == name {
			return labels[i].Value
		}
	}
	return nil
}

// word returns a text that others chose, fit to be a label.
func word(b []byte) string { return text.Clean(string(b), maxName) }
