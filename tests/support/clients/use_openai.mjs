// A program that uses the service through `openai` for Node, and prints what it got as JSON.
import OpenAI from "openai";
import { zodFunction, zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI();
const Point = z.object({ x: z.number() });
const found = {};

const first = await client.responses.create({ model: "m", input: "I play the violin." });
const second = await client.responses.create({
  model: "m",
  input: "What do I play?",
  previous_response_id: first.id,
});
found.chain = [first.output_text, second.output_text];

let text = "";
for await (const event of await client.responses.create({ model: "m", input: "Count.", stream: true })) {
  if (event.type === "response.output_text.delta") text += event.delta;
}
const runner = client.responses.stream({ model: "m", input: "Count." });
found.stream = [text, (await runner.finalResponse()).output_text];

const add = { type: "function", name: "add", parameters: z.toJSONSchema(z.object({ a: z.number(), b: z.number() })) };
const asked = await client.responses.create({ model: "m", input: "2 + 3?", tools: [add] });
const call = asked.output.find((item) => item.type === "function_call");
const { a, b } = JSON.parse(call.arguments);
const told = await client.responses.create({
  model: "m",
  previous_response_id: asked.id,
  tools: [add],
  input: [{ type: "function_call_output", call_id: call.call_id, output: String(a + b) }],
});
found.tool = told.output_text;

const form = { format: zodTextFormat(Point, "point") };
found.schema = (await client.responses.parse({ model: "m", input: "Where?", text: form })).output_parsed.x;

const talk = await client.conversations.create({ metadata: { topic: "music" } });
await client.responses.create({ model: "m", input: "Hello.", conversation: talk.id });
const items = [];
for await (const item of client.conversations.items.list(talk.id, { order: "asc" })) items.push(item.type);
found.conversation = items;

const job = await client.responses.create({ model: "m", input: "Slowly.", background: true });
const done = await client.responses.retrieve(job.id, { stream: true });
for await (const event of done) {
  if (event.type === "response.completed") found.background = event.response.output[0].content[0].text;
}

found.cancelled = (await client.responses.cancel(job.id)).status;

const image = { type: "input_image", image_url: "data:image/png;base64,iVBORw0KGgo=", detail: "auto" };
const content = [{ type: "input_text", text: "What is this?" }, image];
const seen = await client.responses.create({ model: "m", input: [{ role: "user", content }] });
const inputs = await client.responses.inputItems.list(seen.id);
found.image = [seen.output_text, inputs.data[0].content[1].type];

const compacted = await client.responses.compact({ model: "m", previous_response_id: first.id });
const next = await client.responses.create({ model: "m", input: [...compacted.output, { role: "user", content: "And?" }] });
found.compacted = next.output_text;

await client.conversations.items.delete((await client.conversations.items.list(talk.id)).data[0].id, {
  conversation_id: talk.id,
});
await client.conversations.delete(talk.id);
await client.responses.delete(second.id);
found.deleted = await client.responses.retrieve(second.id).catch((problem) => problem.status);

const tool = zodFunction({ name: "add", parameters: z.object({ a: z.number(), b: z.number() }), function: ({ a, b }) => a + b });
const messages = [{ role: "user", content: "2 + 3?" }];
found.chat = [await client.chat.completions.runTools({ model: "m", messages, tools: [tool] }).finalContent()];
const parsed = await client.chat.completions.parse({
  model: "m",
  messages,
  response_format: zodResponseFormat(Point, "point"),
});
found.chat.push(parsed.choices[0].message.parsed.x);
console.log(JSON.stringify(found));
