// Vulncheck runs govulncheck over the packages named on its command line against a local vulnerability database, and
// decides what fails a build.
//
// A vulnerable function of a module that the code calls fails: go.mod can be changed to a fixed version. The same in the
// standard library is only printed: its version is that of whoever builds, and no commit here can change it. What is
// imported or required but never called is counted.
//
// It exits with 1 if something fails, and with 2 if the scan did not run to its end.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/vuln/scan"
)

func main() {
	db := flag.String("db", "", "`directory` with one OSV file (GO-YYYY-NNNN.json) for each vulnerability")
	flag.Parse()
	failed, err := run(os.Stdout, *db, flag.Args())
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "vulncheck:", err)
		os.Exit(2)
	case failed:
		os.Exit(1)
	}
}

func run(w io.Writer, db string, patterns []string) (failed bool, err error) {
	url, err := databaseURL(db)
	if err != nil {
		return false, err
	}
	var stream bytes.Buffer
	cmd := scan.Command(context.Background(), append([]string{"-format", "json", "-db", url}, patterns...)...)
	cmd.Stdout = &stream
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("starting govulncheck: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		return false, fmt.Errorf("govulncheck over %q: %w", patterns, err)
	}
	report, err := parse(&stream)
	if err != nil {
		return false, err
	}
	report.write(w)
	return report.failed(), nil
}

// databaseURL refuses a directory without entries: govulncheck takes it for a database in which nothing is vulnerable.
func databaseURL(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("vulnerability database %q: %w", dir, err)
	}
	entries, err := filepath.Glob(filepath.Join(abs, "GO-*.json"))
	if err != nil {
		return "", fmt.Errorf("vulnerability database %q: %w", dir, err)
	}
	if len(entries) == 0 {
		return "", errors.New("no GO-*.json in the vulnerability database directory " + abs + ": give -db the data/osv of golang.org/x/vulndb")
	}
	return "file://" + filepath.ToSlash(abs), nil
}
