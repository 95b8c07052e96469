// Runs an agent with AG-UI's own client: each line of stdin is a call of runAgent(), each line of stdout what came of it.
import { createInterface } from "node:readline";
import { HttpAgent } from "@ag-ui/client";

const agent = new HttpAgent({
  url: process.argv[2],
  threadId: process.argv[3],
  headers: { Authorization: "Bearer secret" },
});
const events = [];
agent.subscribe({ onEvent: ({ event }) => void events.push(event) });

for await (const line of createInterface({ input: process.stdin })) {
  const { say, ...parameters } = JSON.parse(line);
  if (say !== undefined) agent.addMessage({ id: crypto.randomUUID(), role: "user", content: say });
  let error = null;
  try {
    await agent.runAgent(parameters);
  } catch (failed) {
    error = failed.message;
  }
  const told = { error, messages: agent.messages, pending: agent.pendingInterrupts, events: events.splice(0) };
  console.log(JSON.stringify(told));
}
