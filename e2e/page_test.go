package e2e

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpuvigil/detect"
	"gpuvigil/rules"
)

// pictureFile is the README's picture.
const pictureFile = "../docs/page.png"

// pageWidth is that of the picture, which shows the top of the page.
const pageWidth = 1280

// TestPageScreenshot looks at the demo's page with a real browser. With -update it
// makes the README's picture.
func TestPageScreenshot(t *testing.T) {
	t.Parallel()
	browser := findBrowser(t)
	a := demoNode.running(t).agent
	address := "http://" + a.address + "/?paused"

	f, err := a.findings()
	if err != nil {
		t.Fatal(err)
	}
	dom := browse(t, browser, "--window-size=1280,4000", "--dump-dom", address)
	for _, f := range f.Findings {
		if title := rules.Get(f.Rule).Title; f.State == detect.Firing && f.Severity >= rules.Ticket && !strings.Contains(dom, f.Title) && !strings.Contains(dom, title) {
			t.Errorf("the browser does not show the finding %q", title)
		}
	}
	if !strings.Contains(dom, "Simulated") {
		t.Error("the browser does not show that the page is simulated")
	}

	file := filepath.Join(t.TempDir(), "page.png")
	browse(t, browser, "--window-size=1280,1400", "--hide-scrollbars", "--screenshot="+file, address)
	picture, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("the browser took no picture: %v", err)
	}
	img, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	if w := img.Bounds().Dx(); w != pageWidth {
		t.Errorf("the picture is %d pixels wide, want %d", w, pageWidth)
	}
	if n := colours(img); n < 50 {
		t.Errorf("the picture has %d colours: the page is blank", n)
	}
	if *update {
		var cut bytes.Buffer
		small := png.Encoder{CompressionLevel: png.BestCompression}
		if err := errors.Join(small.Encode(&cut, img), os.MkdirAll(filepath.Dir(pictureFile), 0o755)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(pictureFile, cut.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func findBrowser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no Chromium here, so the page is not looked at; install the package chromium")
	return ""
}

// browse runs the browser without a screen, and without a word to anybody but the
// page's server.
func browse(t *testing.T, browser string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, browser, append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--force-color-profile=srgb", "--user-data-dir=" + t.TempDir(),
	}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", browser, err, stderr.Bytes())
	}
	return string(out)
}

func colours(img image.Image) int {
	seen := map[[3]uint32]bool{}
	b := img.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			r, g, b, _ := img.At(x, y).RGBA()
			seen[[3]uint32{r, g, b}] = true
		}
	}
	return len(seen)
}
