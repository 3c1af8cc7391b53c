package docs_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"gpuvigil/internal/config"
)

// defaultPort is where the documentation's agents listen.
const defaultPort = "9836"

// block is a fenced block of a page.
type block struct {
	info   string   // language and whatever follows it
	lines  []string //
	before string   // the paragraph before it
	at     int      // line number of the fence
}

// blocks returns the fenced blocks of a page.
func blocks(page string) []block {
	var all []block
	var paragraph []string
	var open *block
	for n, line := range strings.Split(page, "\n") {
		trimmed := strings.TrimSpace(line)
		switch fence := strings.HasPrefix(trimmed, "```"); {
		case fence && open != nil:
			all = append(all, *open)
			open, paragraph = nil, nil
		case fence:
			open = &block{info: strings.TrimPrefix(trimmed, "```"), before: strings.Join(paragraph, " "), at: n + 1}
		case open != nil:
			open.lines = append(open.lines, line)
		case trimmed == "" && len(paragraph) > 0 && paragraph[len(paragraph)-1] != "":
			paragraph = append(paragraph, "")
		case trimmed != "":
			if len(paragraph) > 0 && paragraph[len(paragraph)-1] == "" {
				paragraph = nil
			}
			paragraph = append(paragraph, trimmed)
		}
	}
	return all
}

// commandsOf joins a block's continued lines and leaves out empty ones.
func commandsOf(b block) []string {
	var all []string
	joined := ""
	for _, line := range b.lines {
		if head, ok := strings.CutSuffix(line, `\`); ok {
			joined += head
			continue
		}
		if line = strings.TrimSpace(joined + line); line != "" {
			all = append(all, line)
		}
		joined = ""
	}
	return all
}

var exits = regexp.MustCompile(`# exits with (\d)`)

// shell runs the commands of one page as a reader would: in one directory, in
// their order. An agent that a command starts runs until the next one is started.
type shell struct {
	dir, port string
	env       []string
	agent     *agent
}

func TestCommandsDoWhatTheTextSays(t *testing.T) {
	ran := 0
	for _, path := range pages(t) {
		page := read(t, path)
		t.Run(filepath.Base(filepath.Dir(path))+"_"+filepath.Base(path), func(t *testing.T) {
			var s *shell
			for _, b := range blocks(page) {
				language, mark, _ := strings.Cut(b.info, " ")
				if language != "console" {
					continue
				}
				if mark == "not-run" {
					if !strings.Contains(strings.ToLower(b.before), "not run") {
						t.Errorf("line %d: the commands are not run by this test, and the text before does not say so", b.at)
					}
					continue
				}
				if s == nil {
					s = newShell(t)
				}
				for _, command := range commandsOf(b) {
					ran++
					s.run(t, b.at, command)
				}
			}
		})
	}
	if ran < 10 {
		t.Errorf("only %d commands of the documentation were found to run", ran)
	}
}

func newShell(t *testing.T) *shell {
	t.Helper()
	s := &shell{dir: t.TempDir(), port: freePort(t)}
	s.env = append(os.Environ(), "HOME="+s.dir, "XDG_STATE_HOME="+filepath.Join(s.dir, "state"), "STATE_DIRECTORY=")
	if err := os.Mkdir(filepath.Join(s.dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(binary(t), filepath.Join(s.dir, "bin", "gpuvigil")); err != nil {
		t.Fatal(err)
	}
	return s
}

// foreign matches what changes the machine and not only the reader's directory.
var foreign = regexp.MustCompile(`(^|\s)(sudo|systemctl|kubectl|docker)\b|\s/(etc|usr|var|opt)/`)

func (s *shell) run(t *testing.T, at int, command string) {
	t.Helper()
	if foreign.MatchString(command) {
		t.Errorf("line %d: %s changes the machine: its block must be marked not-run", at, command)
		return
	}
	if target, ok := strings.CutPrefix(command, "make "); ok {
		if command = dryRun(t, at, target); command == "" {
			return
		}
	}
	plain, _, _ := strings.Cut(command, " #")
	words := strings.Fields(plain)
	if len(words) > 1 && words[0] == "bin/gpuvigil" && (words[1] == "run" || words[1] == "demo") {
		if s.agent != nil {
			s.agent.stop(t)
		}
		s.agent = start(t, s.dir, s.env, s.port, words[1:]...)
		return
	}
	want := 0
	if m := exits.FindStringSubmatch(command); m != nil {
		want, _ = strconv.Atoi(m[1])
	}
	if words[0] == "curl" {
		if _, err := exec.LookPath("curl"); err != nil {
			t.Logf("line %d: %s: not tried, there is no curl here", at, command)
			return
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", strings.ReplaceAll(command, defaultPort, s.port))
	cmd.Dir, cmd.Env = s.dir, s.env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != want {
		t.Errorf("line %d: %s: %v, want exit code %d; it printed:\n%s", at, command, err, want, out.String())
	}
}

// dryRun checks that make knows the target, and returns the command that starts an
// agent, if that is what the target does in the end.
func dryRun(t *testing.T, at int, target string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "make -n "+target)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("line %d: make %s: %v: %s", at, target, err, out)
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if last := strings.TrimSpace(lines[len(lines)-1]); strings.HasPrefix(last, "bin/gpuvigil ") {
		return last
	}
	return ""
}

// TestExamplesOfConfiguration loads each example of gpuvigil.yml as the agent does.
func TestExamplesOfConfiguration(t *testing.T) {
	found := 0
	for _, path := range pages(t) {
		for _, b := range blocks(read(t, path)) {
			if !strings.HasPrefix(b.info, "yaml") {
				continue
			}
			source := []byte(strings.Join(b.lines, "\n") + "\n")
			var any any
			if err := yaml.Unmarshal(source, &any); err != nil {
				t.Errorf("%s:%d: not YAML: %v", path, b.at, err)
			}
			if len(b.lines) > 0 && strings.HasPrefix(b.lines[0], "# gpuvigil.yml") {
				found++
				if _, err := config.Parse("gpuvigil.yml", source); err != nil {
					t.Errorf("%s:%d: gpuvigil does not take this configuration: %v", path, b.at, err)
				}
			}
		}
	}
	if found == 0 {
		t.Error("no example of the configuration was found")
	}
}

func TestBlocksAreUnderstood(t *testing.T) {
	page := "one\n\ntwo, not run\n\n```console not-run\na \\\n  b # exits with 2\n\nc\n```\n"
	got := blocks(page)
	if len(got) != 1 || got[0].info != "console not-run" || !strings.Contains(got[0].before, "two, not run") || strings.Contains(got[0].before, "one") {
		t.Fatalf("blocks: %+v", got)
	}
	if c := commandsOf(got[0]); len(c) != 2 || c[0] != "a   b # exits with 2" || c[1] != "c" {
		t.Errorf("commands: %q", c)
	}
}
