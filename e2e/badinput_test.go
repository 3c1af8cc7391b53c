package e2e

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBadInput starts the agent with what is wrong before it starts. It must
// refuse, say what is wrong and what to do, and not say a secret.
func TestBadInput(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	dir := t.TempDir()
	file := write(t, "file", "")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	slack := func(key, path string) string {
		return fmt.Sprintf("alerting:\n  slack:\n  - name: oncall\n    %s: %s\n", key, path)
	}
	for _, c := range []struct {
		name    string
		command string // run unless given
		config  string
		args    []string
		want    []string // in what it says
	}{
		{name: "unknown key", config: "sampling:\n  fsat: 1s\n", want: []string{"gpuvigil.yml:2", "sampling.fsat", "unknown key", "fast"}},
		{name: "wrong type", config: "nvml:\n  enabled: maybe\n", want: []string{"gpuvigil.yml:2", "nvml.enabled", "maybe", "true or false"}},
		{name: "no YAML", config: "node: [\n", want: []string{"gpuvigil.yml", "not valid YAML"}},
		{name: "no configuration file", args: []string{"--config.file=" + filepath.Join(dir, "absent.yml")}, want: []string{"absent.yml", "no such file"}},
		{name: "unknown flag", args: []string{"--lsiten=:1"}, want: []string{"lsiten", "gpuvigil help"}},
		{name: "port in use", args: []string{"--web.listen-address=" + taken.Addr().String()}, want: []string{taken.Addr().String(), "in use", "--web.listen-address"}},
		{name: "secret file that is not there", config: slack("webhook_url_file", filepath.Join(dir, "absent")), want: []string{"oncall", "absent", "no such file", "can read"}},
		{name: "secret file that cannot be read", config: slack("webhook_url_file", dir), want: []string{"oncall", dir, "not a regular file"}},
		{name: "secret file that is empty", config: slack("webhook_url_file", file), want: []string{"oncall", file, "empty"}},
		{name: "webhook URL that does not parse", config: slack("webhook_url_file", write(t, "webhook", "https://hooks.slack.com/services/%zz"+secret)), want: []string{"oncall", "URL"}},
		{name: "webhook URL without a host", config: slack("webhook_url_file", write(t, "webhook", secret)), want: []string{"oncall", "URL"}},
		{name: "secret in the wrong place", config: "alerting:\n  slack: xoxb-" + secret + "\n", want: []string{"gpuvigil.yml:2", "alerting.slack"}},
		{name: "state directory below a file", args: []string{"--state.dir=" + filepath.Join(file, "state")}, want: []string{file, "not a directory", "--state.dir"}},
		{name: "state file of something else", args: []string{"--state.dir=" + dirWith(t, "state.db", nil)}, want: []string{"state.db", "is a directory", "--state.dir"}},
		{name: "no procfs", args: []string{"--path.procfs=" + filepath.Join(dir, "absent")}, want: []string{"procfs", "absent", "--path.procfs"}},
		{name: "web configuration", args: []string{"--web.config.file=" + write(t, "web.yml", "basic_auth_user: {}\n")}, want: []string{"web.yml", "basic_auth_user"}},
		{name: "unknown scenario", command: "demo", args: []string{"--demo.scenario=nothing"}, want: []string{"nothing", "quiet"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{cmp.Or(c.command, "run"), "--state.dir=" + filepath.Join(t.TempDir(), "state"), "--web.listen-address=127.0.0.1:0"}, c.args...)
			if c.config != "" {
				args = append(args, "--config.file="+write(t, "gpuvigil.yml", c.config))
			}
			code, said := runs(t, nil, binary, lastWins(args)...)
			if code == 0 || !containsAll(said, c.want) {
				t.Errorf("gpuvigil exits %d, want a failure that says %q; it says:\n%s", code, c.want, said)
			}
			if strings.Contains(said, secret) {
				t.Errorf("a secret is printed:\n%s", said)
			}
			if strings.Contains(said, "goroutine ") {
				t.Errorf("it crashes:\n%s", said)
			}
			if c.config == "" {
				return
			}
			if code, said := runs(t, nil, binary, "check", args[len(args)-1][len("--config.file="):]); code == 0 || !containsAll(said, c.want) || strings.Contains(said, secret) {
				t.Errorf("gpuvigil check exits %d on it, want a failure that says %q without a secret; it says:\n%s", code, c.want, said)
			}
		})
	}
}

// lastWins drops a flag that is given again later.
func lastWins(args []string) (kept []string) {
	for i, a := range args {
		name, _, _ := strings.Cut(a, "=")
		again := false
		for _, b := range args[i+1:] {
			again = again || strings.HasPrefix(b, name+"=")
		}
		if !again {
			kept = append(kept, a)
		}
	}
	return kept
}

// dirWith makes a directory that holds a file, or another directory if there is
// no content.
func dirWith(t *testing.T, name string, content []byte) string {
	t.Helper()
	dir := shortDir(t)
	path := filepath.Join(dir, name)
	var err error
	if content == nil {
		err = os.Mkdir(path, 0o700)
	} else {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
