// A program that uses the service through the AI SDK, and prints what it got as JSON.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const openai = createOpenAI();
const compatible = createOpenAICompatible({
  name: "longtalk",
  baseURL: process.env.OPENAI_BASE_URL,
  apiKey: process.env.OPENAI_API_KEY,
  supportsStructuredOutputs: true,
});
const tools = {
  add: tool({
    description: "Add two numbers.",
    inputSchema: z.object({ a: z.number(), b: z.number() }),
    execute: async ({ a, b }) => a + b,
  }),
};
const found = {};

async function use(model) {
  const hello = await generateText({ model, system: "Be brief.", prompt: "I'm Ada." });
  const stream = streamText({ model, prompt: "Count." });
  let streamed = "";
  for await (const piece of stream.textStream) streamed += piece;
  const told = await generateText({ model, tools, stopWhen: stepCountIs(3), prompt: "2 + 3?" });
  const schema = z.object({ x: z.number() });
  const place = await generateText({ model, output: Output.object({ schema }), prompt: "Where?" });
  const image = { type: "image", image: Buffer.from("iVBORw0KGgo=", "base64"), mediaType: "image/png" };
  const content = [{ type: "text", text: "What is this?" }, image];
  const seen = await generateText({ model, messages: [{ role: "user", content }] });
  return [hello.text, streamed, told.text, place.output.x, seen.text];
}

found.responses = await use(openai.responses("m"));
found.chat = await use(openai.chat("m"));
found.compatible = await use(compatible("m"));

const first = await generateText({ model: openai("m"), prompt: "I play the violin." });
const previousResponseId = first.providerMetadata.openai.responseId;
const second = await generateText({
  model: openai("m"),
  prompt: "What do I play?",
  providerOptions: { openai: { previousResponseId } },
});
found.chain = [first.text, second.text];

// Without `previousResponseId`, earlier answers are sent as references to their items.
const messages = [{ role: "user", content: "I play the violin." }];
const hello = await generateText({ model: openai("m"), messages });
messages.push(...hello.response.messages, { role: "user", content: "2 + 3?" });
const sum = await generateText({ model: openai("m"), messages, tools, stopWhen: stepCountIs(3) });
messages.push(...sum.response.messages, { role: "user", content: "What do I play?" });
found.messages = [hello.text, sum.text, (await generateText({ model: openai("m"), messages })).text];
console.log(JSON.stringify(found));
