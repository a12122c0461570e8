package tektronix

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"wattmark/monitor/scpi"
)

// maxEvents is more than an event queue holds.
const maxEvents = 256

// parseEvents reads the reply to ALLEv?: code,"text" and on. What is no complaint
// (nothing to report, power on, operation complete, a warning) is left out.
func parseEvents(s string) (out []scpi.DeviceError, err error) {
	rest := strings.TrimSpace(s)
	for n := 0; ; n++ {
		code, after, _ := strings.Cut(rest, ",")
		v, err := strconv.Atoi(strings.TrimSpace(code))
		if err != nil || v < 0 || v > 99_999 || n == maxEvents {
			return nil, fmt.Errorf("%w: ALLEv? gives %s", scpi.ErrReply, shown(s))
		}
		text, more, err := quotedText(after)
		if err != nil {
			return nil, fmt.Errorf("%w: ALLEv? gives %s", err, shown(s))
		}
		if complaint(v) {
			out = append(out, scpi.DeviceError{Code: v, Text: text})
		}
		if more == "" {
			return out, nil
		}
		rest = more
	}
}

// complaint tells the codes of errors. 4xx are events of the system, of which
// 410 to 430 are errors of queries; 5xx and 6xx are warnings (programmer manuals,
// "Event Codes").
func complaint(code int) bool {
	switch {
	case code < 100:
		return false
	case code >= 400 && code < 410, code > 430 && code < 700:
		return false
	}
	return true
}

// quotedText takes a string in quotes, and the comma behind it where more follows.
func quotedText(s string) (text, more string, err error) {
	if !strings.HasPrefix(s, `"`) {
		return "", "", scpi.ErrReply
	}
	for i := 1; i < len(s); i++ {
		if s[i] != '"' {
			continue
		}
		if i+1 < len(s) && s[i+1] == '"' {
			i++
			continue
		}
		text = strings.ReplaceAll(s[1:i], `""`, `"`)
		more = strings.TrimSpace(s[i+1:])
		if more == "" {
			return text, "", nil
		}
		if more[0] != ',' || len(more) == 1 {
			return "", "", scpi.ErrReply
		}
		return text, more[1:], nil
	}
	return "", "", scpi.ErrReply
}

// Check asks for the events since *CLS. *ESR? releases them.
func (*dialect) Check(ctx context.Context, c *scpi.Client) error {
	if _, err := c.QueryNumber(ctx, "*ESR?"); err != nil {
		return err
	}
	events, err := scpi.Ask(ctx, c, "ALLEV?", parseEvents)
	all := []error{err}
	for _, e := range events {
		all = append(all, e)
	}
	return errors.Join(all...)
}
