package slack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"

	"github.com/slack-go/slack"

	"gpuvigil/alerting"
	"gpuvigil/alerting/chart"
)

const (
	pictureSent  = 9 // in thread.pictures: there is nothing more to try
	pictureTries = 3
)

var notInName = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// pictureName is the name of an incident's picture, by which it is known in its thread.
func pictureName(m *alerting.Message) string {
	return "gpuvigil-" + notInName.ReplaceAllString(m.Incident.ID, "_") + ".png"
}

// picture uploads what the last hours looked like into a thread, once. The message stands
// without it: what goes wrong is logged and tried again with the incident's next change.
func (b *Bot) picture(ctx context.Context, c *conn, th *thread, m *alerting.Message) {
	if !b.cfg.Charts || m.Chart == nil || th.pictures >= pictureTries {
		return
	}
	data := m.Chart()
	if data == nil || len(data.Points) < 2 {
		return
	}
	if th.pictures > 0 { // the attempt before may have arrived after all
		known, err := b.recall(ctx, c, *th, m)
		if err != nil || known.pictures >= pictureTries {
			th.pictures = known.pictures
			return
		}
	}
	th.pictures++
	err := b.upload(ctx, c, th, m, data)
	if err == nil {
		th.pictures = pictureSent
		return
	}
	var refused *alerting.Refusal
	if errors.As(err, &refused) {
		th.pictures = pictureSent
	}
	b.cfg.Log.Warn("the chart of an incident was not uploaded; its message stands without", "incident", m.Incident.ID, "err", err)
}

// upload goes through Slack's three steps: ask where to, post the bytes there, say which
// thread they are for.
func (b *Bot) upload(ctx context.Context, c *conn, th *thread, m *alerting.Message, data *alerting.Chart) error {
	png, err := chart.PNG(data)
	if err != nil {
		return err
	}
	name := pictureName(m)
	at, err := c.GetUploadURLExternalContext(ctx, slack.GetUploadURLExternalParameters{FileName: name, FileSize: len(png), AltTxt: fit(describe(data), maxHeader)})
	if err := c.judge(err); err != nil {
		return fmt.Errorf("ask Slack where to upload a chart: %w", err)
	}
	if at.UploadURL == "" || at.FileID == "" {
		return fmt.Errorf("ask Slack where to upload a chart: %w", c.notSlack())
	}
	err = c.UploadToURL(ctx, slack.UploadToURLParameters{UploadURL: at.UploadURL, Reader: bytes.NewReader(png), Filename: name})
	if err := c.judge(err); err != nil {
		return fmt.Errorf("upload a chart to Slack: %w", err)
	}
	_, err = c.CompleteUploadExternalContext(ctx, slack.CompleteUploadExternalParameters{
		Files: []slack.FileSummary{{ID: at.FileID, Title: fit(data.Title, maxHeader)}}, Channel: th.channel, ThreadTimestamp: th.ts,
	})
	if err := c.judge(err); err != nil {
		return fmt.Errorf("put a chart into its thread in Slack: %w", err)
	}
	return nil
}

// describe tells those who cannot see the picture what it shows.
func describe(c *alerting.Chart) string {
	last := c.Points[len(c.Points)-1]
	said := fmt.Sprintf("%s: %.4g %s at %s", c.Title, last.Mean, c.Unit, last.Time.UTC().Format("15:04 MST"))
	if !math.IsNaN(c.Low) && !math.IsNaN(c.High) {
		said += fmt.Sprintf("; %s %.4g to %.4g", c.Band, c.Low, c.High)
	}
	return strings.TrimSpace(said)
}
